"""Estimates the memory that a training needs, before anything is loaded.

Weights, gradients and the optimizer's moments are exact; activations are computed from the model's
dimensions (a transformer stores its layers' inputs, and with gradient checkpointing the inside of
one layer: Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
section 4, without the attention matrices, which fused attention does not store). They are rounded
up: refusing a training that would fit costs a setting, starting one that does not costs the host.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

_MIB = 1024 * 1024
_FLOAT = 4
_CHUNK_TOKENS = 256
"""Tokens whose logits the chunked loss computes at once (TRL's constant)."""
_LOGIT_COPIES = 3
"""Logits in float32, their softmax, their gradient."""
_MOMENTS = {"adamw_torch_fused": 2.0, "adamw_torch": 2.0, "adafactor": 0.05, "sgd": 0.0}
"""Numbers that an optimizer stores for each trained parameter; adafactor's are factored."""
_SMALLER_OPTIMIZER = "adafactor"


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The dimensions of a model that determine its memory.

    Attributes:
        parameters: numbers in its weights.
        matrices: those in matrices that 8-bit loading shrinks.
        lora: numbers in the adapter that would be trained.
        layers: transformer layers.
        hidden: width of a layer.
        inner: width inside a layer's feed-forward part.
        vocabulary: number of tokens.
        weight_bytes: bytes of one loaded number.
    """

    parameters: int
    matrices: int
    lora: int
    layers: int
    hidden: int
    inner: int
    vocabulary: int
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What is trained, and how.

    Attributes:
        size: of the model.
        use_peft: whether only an adapter is trained.
        load_in_8bit: whether the frozen matrices use one byte per number.
        optim: the optimizer.
        batch: sequences that go through the model together.
        length: tokens of the longest sequence.
        checkpointing: whether activations are recomputed.
        full_logits: whether the logits of a whole batch are computed at once.
        references: further copies of the weights that are only read.
        overhead_mib: libraries, and on a device its context.
        beside: MiB of other things by name (a reward model, for example).
    """

    size: ModelSize
    use_peft: bool
    load_in_8bit: bool
    optim: str
    batch: int
    length: int
    checkpointing: bool
    full_logits: bool
    references: int
    overhead_mib: int
    beside: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """Memory by purpose, in MiB."""

    weights: int
    gradients: int
    moments: int
    activations: int
    overhead: int
    beside: tuple[tuple[str, int], ...] = ()

    @property
    def total(self) -> int:
        """The sum of all parts."""
        own = self.weights + self.gradients + self.moments + self.activations
        return own + self.overhead + sum(mib for _, mib in self.beside)

    def __str__(self) -> str:
        """Returns the sum and its parts, for a message."""
        parts = (
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("the optimizer", self.moments),
            ("activations", self.activations),
            *self.beside,
            ("libraries", self.overhead),
        )
        return f"{self.total} MiB ({', '.join(f'{name} {mib}' for name, mib in parts if mib)})"


def need(plan: TrainingPlan) -> MemoryBreakdown:
    """Returns the memory that a plan needs."""
    size = plan.size
    shrunk = size.matrices if plan.load_in_8bit else 0
    one_copy = (size.parameters - shrunk) * size.weight_bytes + shrunk
    trained = size.lora if plan.use_peft else size.parameters
    # An adapter is trained in float32 with any dtype of the model, in addition to the model.
    each = _FLOAT if plan.use_peft else size.weight_bytes
    own = size.lora * _FLOAT if plan.use_peft else 0
    return MemoryBreakdown(
        weights=_mib(one_copy * (1 + plan.references) + own),
        gradients=_mib(trained * each),
        moments=_mib(trained * each * _MOMENTS[plan.optim]),
        activations=_mib(_activations(plan)),
        overhead=plan.overhead_mib,
        beside=plan.beside,
    )


def _activations(plan: TrainingPlan) -> float:
    size, tokens = plan.size, plan.batch * plan.length
    # Inputs of the norms, of attention and of the feed-forward part, and their outputs.
    inside = 8 * size.hidden + 4 * size.inner
    stored = size.layers * size.hidden + inside if plan.checkpointing else size.layers * inside
    logits = tokens if plan.full_logits else min(tokens, _CHUNK_TOKENS)
    return tokens * stored * size.weight_bytes + _LOGIT_COPIES * logits * size.vocabulary * _FLOAT


def what_fits(plan: TrainingPlan, memory_mib: int, *, on_device: bool) -> Iterator[str]:
    """Yields settings of ``with`` and ``resources``, each of which alone would make the plan fit.

    Args:
        plan: the plan that does not fit.
        memory_mib: the available memory.
        on_device: whether the memory is a device's.
    """
    if not plan.use_peft and _fits(replace(plan, use_peft=True, references=0), memory_mib):
        yield f"use_peft: true ({_total(replace(plan, use_peft=True, references=0))} MiB)"
    eight = replace(plan, use_peft=True, load_in_8bit=True, references=0)
    if on_device and not plan.load_in_8bit and _fits(eight, memory_mib):
        yield f"use_peft and load_in_8bit: true ({_total(eight)} MiB)"
    smaller = replace(plan, optim=_SMALLER_OPTIMIZER)
    if plan.optim != _SMALLER_OPTIMIZER and _fits(smaller, memory_mib):
        yield f"optim: {_SMALLER_OPTIMIZER} ({_total(smaller)} MiB)"
    if not plan.checkpointing and _fits(replace(plan, checkpointing=True), memory_mib):
        yield "gradient_checkpointing: true"
    batch = _largest_batch(plan, memory_mib)
    if 0 < batch < plan.batch:
        yield (
            f"per_device_train_batch_size: {batch} with gradient_accumulation_steps times"
            f" {-(-plan.batch // batch)}"
        )
    yield f"resources.memory: {_total(plan)}Mi"


def _largest_batch(plan: TrainingPlan, memory_mib: int) -> int:
    least, most = 0, plan.batch
    while least < most:
        middle = (least + most + 1) // 2
        if _fits(replace(plan, batch=middle), memory_mib):
            least = middle
        else:
            most = middle - 1
    return least


def _fits(plan: TrainingPlan, memory_mib: int) -> bool:
    return _total(plan) <= memory_mib


def _total(plan: TrainingPlan) -> int:
    return need(plan).total


def _mib(size_bytes: float) -> int:
    return -(-int(size_bytes) // _MIB)
