"""Ports and parameters that all training engines share.

Parameters have the names and defaults of TRL, transformers and PEFT; where a default differs, its
sentence says so.
"""

from flowmesh_core.catalog.contract import Metric, Param, ParamType, Port, PortKind

MODEL_INPUT = Port("model", PortKind.MODEL, component=True, doc="The model to start from.")
ROWS_INPUT = Port("rows", PortKind.DATASET, doc="The rows to learn from, all of them at once.")
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
            doc="`train_loss`, `steps`, `epochs`, `rows`, `tokens`, `rows_truncated`,"
            " `rows_dropped`, the last logged figures of the trainer, and with `test_size` those on"
            " the rows held out (`eval_loss` ...).",
        ),
        Port(
            "curve",
            PortKind.DATASET,
            doc="One row per logged step: `step`, `epoch`, `loss`, `learning_rate`, `grad_norm`,"
            " `eval_loss` where it was evaluated, and the trainer's own figures.",
        ),
    )


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
        doc="Train a LoRA adapter and leave the model as it is; runs that differ in nothing but"
        " other parameters share one loaded model.",
    ),
    Param(
        "lora_r",
        ParamType.INTEGER,
        default=16,
        minimum=1,
        maximum=4096,
        needs=_ADAPTER,
        doc="LoRA's rank.",
    ),
    Param(
        "lora_alpha",
        ParamType.INTEGER,
        default=32,
        minimum=1,
        needs=_ADAPTER,
        doc="LoRA's scale, over its rank.",
    ),
    Param(
        "lora_dropout",
        ParamType.NUMBER,
        default=0.05,
        minimum=0,
        maximum=0.99,
        needs=_ADAPTER,
        doc="Dropout before LoRA's layers.",
    ),
    Param(
        "lora_target_modules",
        ParamType.LIST,
        needs=_ADAPTER,
        doc="Names of the modules that get LoRA layers, or `[all-linear]`; null leaves the choice"
        " to PEFT, by architecture.",
    ),
    Param(
        "load_in_8bit",
        ParamType.BOOLEAN,
        default=False,
        batch_wide=True,
        needs=_ADAPTER,
        doc="Hold the frozen model in 8 bits; only with `use_peft` and only on GPUs.",
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
            doc="Passes over the rows; a fraction ends within one.",
        ),
        Param(
            "max_steps",
            ParamType.INTEGER,
            default=-1,
            minimum=-1,
            doc="Steps of the optimizer, in place of `num_train_epochs`; -1 leaves it to those.",
        ),
        Param(
            "per_device_train_batch_size",
            ParamType.INTEGER,
            default=8,
            minimum=1,
            doc="Rows that go through the model together.",
        ),
        Param(
            "per_device_eval_batch_size",
            ParamType.INTEGER,
            default=8,
            minimum=1,
            doc="The same for rows held out.",
        ),
        Param(
            "gradient_accumulation_steps",
            ParamType.INTEGER,
            default=1,
            minimum=1,
            doc="Batches per step of the optimizer: a smaller batch and more of them need less"
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
        doc="Steps over which the learning rate rises from 0; below 1 a share of all steps.",
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
        doc="Gradients are clipped to this norm; 0 clips none.",
    ),
    Param(
        "optim",
        ParamType.STRING,
        default="adamw_torch_fused",
        choices=OPTIMIZERS,
        doc="The optimizer; adafactor and sgd keep far less memory than AdamW.",
    ),
)
_MEASURE = (
    Param(
        "max_length",
        ParamType.INTEGER,
        default=1024,
        minimum=2,
        doc="The most tokens of one row, never more than the model's context; what becomes of"
        " longer rows the engine's paragraph says, and `metrics` counts them.",
    ),
    Param(
        "seed",
        ParamType.INTEGER,
        default=42,
        minimum=0,
        maximum=2**32 - 1,
        doc="Fixes the order of the rows, new weights, dropout and the split.",
    ),
    Param(
        "bf16",
        ParamType.BOOLEAN,
        default=False,
        doc="Compute in bfloat16 beside weights of `dtype` (mixed precision). TRL's default is"
        " true; here `dtype` alone decides unless you ask.",
    ),
    Param(
        "gradient_checkpointing",
        ParamType.BOOLEAN,
        default=True,
        doc="Compute activations again in the backward pass: far less memory, about a fifth"
        " slower.",
    ),
    Param(
        "logging_steps",
        ParamType.INTEGER,
        default=1,
        minimum=1,
        doc="Steps a row of `curve`; the last step is always one. TRL's default is 10.",
    ),
    Param(
        "test_size",
        ParamType.NUMBER,
        default=0.0,
        minimum=0,
        maximum=0.99,
        doc="The share of rows held out for evaluation, drawn by `seed`.",
    ),
    Param(
        "eval_steps",
        ParamType.INTEGER,
        default=0,
        minimum=0,
        doc="Evaluate every so many steps on the rows held out; the end is always evaluated.",
    ),
    Param(
        "save_steps",
        ParamType.INTEGER,
        default=500,
        minimum=0,
        doc="Keep a checkpoint every so many steps, for an attempt that has to go on elsewhere;"
        " 0 keeps none but when the worker is asked to stop.",
    ),
)
