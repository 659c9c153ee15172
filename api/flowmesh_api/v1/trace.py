"""A recorded run: times, sizes, tokens and money of each action, without parameters and content.

The response to ``GET /v1/runs/{uid}/trace``, and the lines of a trace file.
"""

import msgspec


class Weights(msgspec.Struct, frozen=True):
    """Coefficients of throughput, cost and locality in the utility, each at least 0."""

    alpha: float = 1.0
    beta: float = 1.0
    gamma: float = 1.0


class EngineRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the scheduler knows of an engine from its contract.

    Attributes:
        work_unit: what it counts.
        capacity: number of actions that one instance runs at once.
        accelerator: whether it runs on the pool's devices.
        memory_mib: needed besides components.
    """

    name: str
    contract: int
    implementation: int
    work_unit: str = "rows"
    capacity: int = 1
    accelerator: bool = False
    memory_mib: int = 0


class StepDependency(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step that another one waits for.

    Attributes:
        rows: whether chunk k of the other one waits for chunk k of this alone.
    """

    step: str
    rows: bool = False


class StepRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step: its engine, and what it waited for.

    Attributes:
        state: how it ended.
        memory_mib: what the workflow requested; 0 where it did not.
        reuse: ``always``, ``run`` or ``never``.
    """

    step: str
    engine: str
    contract: int
    implementation: int
    state: str
    after: tuple[StepDependency, ...] = ()
    memory_mib: int = 0
    tensor_parallel: int = 1
    reuse: str = "always"


class PartRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An action that a step needed: chunk ``chunk``, or the whole step (-1).

    Attributes:
        action: its name; equal names are equal work.
        hit: a ``HitKind`` where the run did not execute it.
        producer: the run that did.
        saved_nanousd: what that saved.
    """

    step: str
    chunk: int
    action: str
    hit: str = ""
    producer: str = ""
    saved_nanousd: int = 0


class AttemptRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt that this run paid for, in whole or in part.

    Attributes:
        outcome: as in ``AttemptLine``.
        assigned_s: and ``ended_s``, in seconds since the epoch, or since the trace began.
        price_nanousd_per_hour: of its whole worker.
        bill_nanousd: what it cost, ``share_nanousd`` this run's part.
    """

    step: str
    chunk: int
    action: str
    attempt: str
    outcome: str
    ended_s: float
    bill_nanousd: int
    share_nanousd: int
    units: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    run_s: float = 0.0
    load_s: float = 0.0
    fetch_s: float = 0.0
    put_s: float = 0.0
    joules: float = 0.0
    sharers: int = 1
    worker: str = ""
    pool: str = ""
    device_class: str = ""
    devices: int = 1
    device_memory_mib: int = 0
    price_nanousd_per_hour: int = 0
    signature: str = ""
    memory_mib: int = 0
    component_bytes: int = 0
    assigned_s: float = 0.0


class RecordedRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run that has ended, or its state so far.

    Attributes:
        publish: the scope of its results; ``lookup`` those where it looked.
        paid_nanousd: by its receipt.
    """

    run: str
    tenant: str
    phase: str
    created_s: float
    ended_s: float
    publish: str
    lookup: tuple[str, ...]
    private: str
    weights: Weights = Weights()
    priority: int = 0
    budget_nanousd: int = 0
    deadline_s: float = 0.0
    paid_nanousd: int = 0
    joules: float = 0.0
    engines: tuple[EngineRecord, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    parts: tuple[PartRecord, ...] = ()
    attempts: tuple[AttemptRecord, ...] = ()
