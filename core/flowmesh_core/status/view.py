"""What people and programs are shown of a run and of the fabric: the JSON of the control API.

Projections of the machine's state; the control plane never reads them back.
"""

from typing import Any

import msgspec

from flowmesh_core.protocol.messages import Component, EngineInstanceState, WorkerShape


class StepStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a run.

    Attributes:
        state: a ``StepState``.
        reason: why it is where it is: a failure kind, ``upstream``, a rejection cause while it
            waits, or empty.
        message: the same for people, with the remedy.
        actions: how many actions it has (chunks), as far as known; ``done`` of them ended.
        hits: chunks (or the whole step) that needed no run; ``in_flight`` those of them that were
            merged with a running action.
        done_units, total_units: progress inside running attempts, in ``unit``; 0 is unknown.
        tokens_per_s: over the last seconds, of this step's running attempts.
        workers: where it runs.
        paid_nanousd, saved_nanousd: for this run.
        shared_with: namespaces/runs that the step's results were shared with.
        doing: of the attempt that is furthest: ``fetching`` inputs, ``loading`` an engine,
            ``queued`` in it, ``running`` or ``storing``; empty where none has said.
    """

    path: str
    engine: str
    state: str
    reason: str = ""
    message: str = ""
    actions: int = 0
    done: int = 0
    hits: int = 0
    in_flight: int = 0
    executed: int = 0
    attempts: int = 0
    done_units: float = 0.0
    total_units: float = 0.0
    unit: str = ""
    tokens: int = 0
    tokens_per_s: float = 0.0
    workers: tuple[str, ...] = ()
    paid_nanousd: int = 0
    saved_nanousd: int = 0
    shared_with: tuple[str, ...] = ()
    started_s: float = 0.0
    ended_s: float = 0.0
    matrix: dict[str, Any] = {}
    doing: str = ""


class RunStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run, as ``fmesh status`` and the custom resource's status show it.

    Attributes:
        phase: a ``Phase``.
        failed_step, reason, message, remedy, log: of the failure that ended the run.
        outputs: by name: kind, ``cas:`` reference (empty for a skipped step), rows, bytes,
            and of metrics their ``value``.
        counts: steps by state.
        eta_s: predicted seconds to the end; -1 is unknown.
        audit_of: of an audit, the run whose actions it makes again.
    """

    uid: str
    name: str
    namespace: str
    phase: str
    created_s: float
    ended_s: float = 0.0
    steps: tuple[StepStatus, ...] = ()
    counts: dict[str, int] = {}
    actions: int = 0
    executed: int = 0
    hits: int = 0
    paid_nanousd: int = 0
    saved_nanousd: int = 0
    joules: float = 0.0
    joules_estimated: bool = True
    budget_nanousd: int = 0
    deadline_s: float = 0.0
    priority: int = 0
    failed_step: str = ""
    reason: str = ""
    message: str = ""
    remedy: str = ""
    log: tuple[str, ...] = ()
    outputs: dict[str, dict[str, Any] | None] = {}
    eta_s: float = -1.0
    audit_of: str = ""


class WorkerStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker, as ``fmesh workers`` shows it."""

    shape: WorkerShape
    state: str  # ready | busy | cordoned | draining | lost
    lanes: tuple[EngineInstanceState, ...] = ()
    components: tuple[Component, ...] = ()
    held: tuple[str, ...] = ()
    last_seen_s: float = 0.0
    lifetime_s: float = 0.0
    bill_nanousd: int = 0


class FabricStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole fabric: money adds up here (bill = receipts + fabric + unsettled).

    Attributes:
        trouble: what keeps the control plane from writing; empty where nothing does.
    """

    epoch: int
    workers: int
    ready_actions: int
    running_actions: int
    bill_nanousd: int
    receipts_nanousd: int
    fabric_nanousd: int
    unsettled_nanousd: int
    saved_nanousd: int
    executed: int
    hits_published: int
    hits_in_flight: int
    hits_step_level: int
    rejections: tuple[dict[str, Any], ...] = ()
    trouble: str = ""
