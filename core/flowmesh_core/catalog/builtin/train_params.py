"""Ports and parameters that all training engines share.

Parameters have the names and defaults of TRL, transformers and PEFT; where a default differs, its
sentence says so.
"""

from collections.abc import Collection

from flowmesh_core.catalog.contract import Metric, Param, ParamType, Port, PortKind

MODEL_INPUT = Port("model", PortKind.MODEL, component=True, doc="The model to start from.")
ROWS_INPUT = Port(
    "rows", PortKind.DATASET, doc="The rows to learn from. One action reads all of them."
)
_TEST_SIZE = "test_size"
"""The parameter with which there are rows to evaluate on."""
_ALWAYS = (
    Metric("train_loss"),
    Metric("steps", ParamType.INTEGER),
    Metric("epochs"),
    Metric("rows", ParamType.INTEGER),
    Metric("rows_dropped", ParamType.INTEGER),
)
TRUNCATED = Metric("rows_truncated", ParamType.INTEGER)
TOKENS = Metric("tokens", ParamType.INTEGER)
ROUTER_LOSS = Metric("aux_loss")
"""Of models with experts whose configuration asks for it."""


def logged(group: str, *names: str) -> tuple[Metric, ...]:
    """Returns the metrics of a group that TRL logs as ``GROUP/NAME``."""
    return tuple(Metric(f"{group}_{name}") for name in names)


def evaluated(*figures: Metric) -> tuple[Metric, ...]:
    """Returns a trainer's figures, and those that it has of the rows held out beside them."""
    return (
        *figures,
        Metric("test_rows", ParamType.INTEGER, with_param=_TEST_SIZE),
        Metric("eval_loss", with_param=_TEST_SIZE),
        *(Metric(f"eval_{f.name}", f.type, with_param=_TEST_SIZE) for f in figures),
    )


def training_outputs(*metrics: Metric) -> tuple[Port, ...]:
    """Returns the output ports of a trainer.

    Args:
        metrics: every metric that it may have beside those of all trainers; some depend on the
            model.
    """
    return (
        Port("model", PortKind.MODEL, only_with=("use_peft", False), doc="The trained model."),
        Port("adapter", PortKind.ADAPTER, only_with=("use_peft", True), doc="The trained adapter."),
        Port(
            "metrics",
            PortKind.METRICS,
            metrics=(*_ALWAYS, *metrics),
            doc=_metrics_doc(metrics),
        ),
        Port(
            "curve",
            PortKind.DATASET,
            doc="One row for each logged step: `step`, `epoch`, `loss`, `learning_rate`,"
            " `grad_norm`, `eval_loss` if the step was evaluated, and the trainer's own metrics.",
        ),
    )


def _metrics_doc(metrics: Collection[Metric]) -> str:
    counted = [*_ALWAYS, *(m for m in (TRUNCATED, TOKENS) if m in metrics)]
    names = ", ".join(f"`{m.name}`" for m in counted)
    doc = f"{names}, and the last metrics that the trainer logged"
    if any(m.with_param == _TEST_SIZE for m in metrics):
        doc += "; with `test_size` also those of the held-out rows (`eval_loss` and others)"
    return f"{doc}."


SCHEDULES = (
    "linear",
    "cosine",
    "constant",
    "constant_with_warmup",
    "cosine_with_restarts",
    "polynomial",
    "inverse_sqrt",
)
OPTIMIZERS = ("adamw_torch_fused", "adamw_torch", "adafactor", "sgd")
_ADAPTER = ("use_peft",)

PEFT_PARAMS = (
    Param(
        "use_peft",
        ParamType.BOOLEAN,
        default=False,
        batch_wide=True,
        doc="Train a LoRA adapter and leave the model unchanged. Steps with the same model, `dtype`"
        " and `load_in_8bit` can then share one loaded model.",
    ),
    Param(
        "lora_r",
        ParamType.INTEGER,
        default=16,
        minimum=1,
        maximum=4096,
        needs=_ADAPTER,
        doc="The rank of the LoRA adapter.",
    ),
    Param(
        "lora_alpha",
        ParamType.INTEGER,
        default=32,
        minimum=1,
        needs=_ADAPTER,
        doc="LoRA's alpha; the adapter is scaled by alpha divided by the rank.",
    ),
    Param(
        "lora_dropout",
        ParamType.NUMBER,
        default=0.05,
        minimum=0,
        maximum=0.99,
        needs=_ADAPTER,
        doc="The dropout probability before the LoRA layers.",
    ),
    Param(
        "lora_target_modules",
        ParamType.LIST,
        needs=_ADAPTER,
        doc="The names of the modules that get LoRA layers, or `[all-linear]`; null lets PEFT"
        " choose by the model's architecture.",
    ),
    Param(
        "load_in_8bit",
        ParamType.BOOLEAN,
        default=False,
        batch_wide=True,
        needs=_ADAPTER,
        doc="Load the frozen model in 8 bits; only with `use_peft` and only on GPUs.",
    ),
)


def training_params(*, learning_rate: float, num_train_epochs: float = 3.0) -> tuple[Param, ...]:
    """Returns the parameters of every trainer, with the defaults that differ between trainers.

    Args:
        learning_rate: the trainer's default.
        num_train_epochs: the trainer's default.
    """
    return (
        Param(
            "learning_rate",
            ParamType.NUMBER,
            default=learning_rate,
            minimum=0,
            doc="The highest learning rate of the schedule.",
        ),
        Param(
            "num_train_epochs",
            ParamType.NUMBER,
            default=num_train_epochs,
            minimum=0,
            doc="The number of passes over the rows; a fraction ends in the middle of a pass.",
        ),
        Param(
            "max_steps",
            ParamType.INTEGER,
            default=-1,
            minimum=-1,
            doc="The number of optimizer steps, instead of `num_train_epochs`; -1 uses"
            " `num_train_epochs`.",
        ),
        Param(
            "per_device_train_batch_size",
            ParamType.INTEGER,
            default=8,
            minimum=1,
            doc="The number of rows in one batch.",
        ),
        Param(
            "per_device_eval_batch_size",
            ParamType.INTEGER,
            default=8,
            minimum=1,
            doc="The number of held-out rows in one batch.",
        ),
        Param(
            "gradient_accumulation_steps",
            ParamType.INTEGER,
            default=1,
            minimum=1,
            doc="The number of batches for one optimizer step. More and smaller batches need less"
            " memory for nearly the same steps.",
        ),
        *_SCHEDULE,
        *_MEASURE,
    )


_SCHEDULE = (
    Param(
        "lr_scheduler_type",
        ParamType.STRING,
        default="linear",
        choices=SCHEDULES,
        doc="The schedule of the learning rate.",
    ),
    Param(
        "warmup_steps",
        ParamType.NUMBER,
        default=0.0,
        minimum=0,
        doc="The number of steps over which the learning rate rises from 0; below 1, a share of all"
        " steps.",
    ),
    Param("weight_decay", ParamType.NUMBER, default=0.0, minimum=0, doc="AdamW's weight decay."),
    Param("adam_beta1", ParamType.NUMBER, default=0.9, minimum=0, maximum=1, doc="AdamW's beta1."),
    Param(
        "adam_beta2", ParamType.NUMBER, default=0.999, minimum=0, maximum=1, doc="AdamW's beta2."
    ),
    Param("adam_epsilon", ParamType.NUMBER, default=1e-8, minimum=0, doc="AdamW's epsilon."),
    Param(
        "max_grad_norm",
        ParamType.NUMBER,
        default=1.0,
        minimum=0,
        doc="The maximum norm of the gradients, which are clipped to it; 0 disables clipping.",
    ),
    Param(
        "optim",
        ParamType.STRING,
        default="adamw_torch_fused",
        choices=OPTIMIZERS,
        doc="The optimizer; `adafactor` and `sgd` need far less memory than AdamW.",
    ),
)
_MEASURE = (
    Param(
        "max_length",
        ParamType.INTEGER,
        default=1024,
        minimum=2,
        doc="The maximum number of tokens of one row, at most the model's context length. The"
        " engine's description says whether longer rows are truncated or dropped; `metrics` counts"
        " them.",
    ),
    Param(
        "seed",
        ParamType.INTEGER,
        default=42,
        minimum=0,
        maximum=2**32 - 1,
        doc="Determines the order of the rows, new weights, dropout and the split.",
    ),
    Param(
        "bf16",
        ParamType.BOOLEAN,
        default=False,
        doc="Compute in bfloat16 while the weights keep `dtype` (mixed precision). TRL's default is"
        " true; here only `dtype` decides unless this is set.",
    ),
    Param(
        "gradient_checkpointing",
        ParamType.BOOLEAN,
        default=True,
        doc="Recompute activations in the backward pass, which needs far less memory and is about a"
        " fifth slower.",
    ),
    Param(
        "logging_steps",
        ParamType.INTEGER,
        default=1,
        minimum=1,
        doc="The number of steps between two rows of `curve`; the last step always has a row. TRL's"
        " default is 10.",
    ),
    Param(
        "test_size",
        ParamType.NUMBER,
        default=0.0,
        minimum=0,
        maximum=0.99,
        doc="The share of rows to hold out for evaluation, chosen by `seed`.",
    ),
    Param(
        "eval_steps",
        ParamType.INTEGER,
        default=0,
        minimum=0,
        doc="The number of steps between two evaluations on the held-out rows; 0 evaluates only at"
        " the end, which is always evaluated.",
    ),
    Param(
        "save_steps",
        ParamType.INTEGER,
        default=500,
        minimum=0,
        doc="The number of steps between two checkpoints, from which another attempt can resume; 0"
        " writes one only when the worker is asked to stop.",
    ),
)
