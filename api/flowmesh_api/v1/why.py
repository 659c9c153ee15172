"""Why a step is in its state, and how its actions are placed."""

from typing import Any

import msgspec

from flowmesh_api.v1.digest import Digest
from flowmesh_api.v1.runs import StepStatus


class ScoredWorker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A worker as a placement decision scored it; an array in JSON.

    Attributes:
        throughput, cost, locality: the terms, each in [0, 1]; ``utility`` is their weighted sum.
        start_s: predicted seconds to the start; ``finish_s`` to the end.
        has_instance: whether an engine instance of the signature was open there.
    """

    worker: str
    utility: float
    throughput: float
    cost: float
    locality: float
    start_s: float
    finish_s: float
    nanousd: int
    has_instance: bool


class AttemptDetails(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where an attempt ran, and what it shared.

    Attributes:
        signature: of its batch.
        memory_mib: reserved by its host; ``component_bytes`` loaded by it.
        pool: of its worker, with device class, devices, price and memory of one device.
        assigned_s: when it was dispatched.
        fetch_s: seconds of fetching inputs; ``put_s`` of storing outputs.
    """

    signature: Digest
    pool: str
    device_class: str
    price_nanousd_per_hour: int
    devices: int
    device_memory_mib: int
    assigned_s: float
    memory_mib: int = 0
    component_bytes: int = 0
    fetch_s: float = 0.0
    put_s: float = 0.0


class AttemptLine(msgspec.Struct, frozen=True, tag="attempt", omit_defaults=True, gc=False):
    """The end of an attempt, in one run's ledger.

    Attributes:
        outcome: ``published``, ``adopted`` (another one was first), ``shared`` (this run shared the
            attempt of the first subscriber), ``audited`` (its result was compared and not stored),
            ``replica``, ``untrusted`` (its pool has less trust than is asked for), ``cancelled``,
            or a failure kind.
        bill_nanousd: what the attempt cost in all; ``share_nanousd`` this run's part.
        sharers: number of runs that split the bill.
        load_nanousd: of the bill, for loading.
        placed: the chosen worker and the best others, as the decision scored them; in the line of
            one attempt of a batch, and of a few batches of a step.
        ran: None where its worker had left, and in older releases.
    """

    time_s: float
    step: str
    chunk: int
    action_id: Digest
    attempt_id: str
    worker: str
    incarnation: str
    outcome: str
    bill_nanousd: int
    share_nanousd: int
    load_nanousd: int = 0
    sharers: int = 1
    units: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    run_s: float = 0.0
    load_s: float = 0.0
    joules: float = 0.0
    joules_estimated: bool = True
    message: str = ""
    placed: tuple[ScoredWorker, ...] = ()
    ran: AttemptDetails | None = None


class HitLine(msgspec.Struct, frozen=True, tag="hit", omit_defaults=True, gc=False):
    """A result that a run reused, in its ledger.

    Attributes:
        hit: a ``HitKind``.
        saved_nanousd: what producing it cost, less this run's share where it paid one.
        producer: the run that published it; ``sharers`` runs that were subscribed with it.
    """

    time_s: float
    step: str
    chunk: int
    action_id: Digest
    hit: str
    saved_nanousd: int
    producer: str = ""
    sharers: tuple[str, ...] = ()
    joules_saved: float = 0.0
    units: int = 0


class WhyPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One action of a step.

    Attributes:
        state: an ``ActionState``.
        subscribers: runs that wait for it together.
        attempts: on workers: ``id``, ``worker``, ``phase``, and ``silentS`` where the engine's host
            has sent no heartbeat for longer than usual, in seconds.
    """

    part: int
    scope: str
    action_id: str
    state: str
    subscribers: tuple[str, ...] = ()
    attempts: tuple[dict[str, Any], ...] = ()
    losses: int = 0
    failures: dict[str, int] = {}
    isolated: bool = False
    avoids: tuple[str, ...] = ()
    last_failure: str = ""


class WhyInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """An input that has several sources, or does without one that was skipped.

    Attributes:
        given: the sources that it gets, such as ``general.rows``, as far as that is decided.
        skipped: the sources that were skipped, each with the reason.
        instead: ``absent`` or ``empty`` where no source is left.
    """

    port: str
    given: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    instead: str = ""


class Why(msgspec.Struct, frozen=True):
    """What a step waits for, what it did not have to run, and what its attempts cost.

    Attributes:
        waits_for: parents that have not ended.
        rejections: why its ready actions were not placed in the last scheduling cycle: ``cause``,
            ``count`` and ``detail``.
        parts: the first of its actions; ``more_parts`` counts the others.
        scopes: where its results are published, and where they are looked up; empty once the run
            has ended.
        inputs: those with several sources, or that do without one.
    """

    uid: str
    step: StepStatus
    waits_for: tuple[str, ...]
    rejections: tuple[dict[str, Any], ...]
    parts: tuple[WhyPart, ...]
    more_parts: int
    hits: tuple[HitLine, ...]
    attempts: tuple[AttemptLine, ...]
    scopes: dict[str, Any]
    inputs: tuple[WhyInput, ...] = ()


class UtilityTerms(msgspec.Struct, frozen=True, gc=False):
    """The terms of a candidate's utility, each in [0, 1], and what they were computed from."""

    throughput: float
    cost: float
    locality: float
    utility: float
    start_s: float
    finish_s: float
    nanousd: int


class Candidate(msgspec.Struct, frozen=True):
    """A worker that could run an action now.

    Attributes:
        has_instance: whether an engine instance of the signature is open there.
    """

    worker: str
    terms: UtilityTerms
    has_instance: bool


class PlacedAction(msgspec.Struct, frozen=True):
    """An action that waits or runs.

    Attributes:
        workers: those with an attempt of it.
        candidates: the feasible workers, best first, scored on the present fleet.
    """

    part: int
    action_id: str
    state: str
    workers: tuple[str, ...]
    candidates: tuple[Candidate, ...]


class Explanation(msgspec.Struct, frozen=True):
    """The placement of a step.

    Attributes:
        weights: coefficients of throughput, cost and locality; zeros where the run has ended and
            its stored plan cannot be read.
        actions: the first of those that wait or run, ``more`` counts the others.
        attempts: where its actions ran; ``placed`` of the first of a batch is what the decision
            was based on.
    """

    uid: str
    step: str
    weights: tuple[float, float, float]
    actions: tuple[PlacedAction, ...]
    more: int
    attempts: tuple[AttemptLine, ...]
