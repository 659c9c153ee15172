"""What an audit set out to check, and what it found."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from flowmesh_core.catalog.contract import Determinism
from flowmesh_core.errors import FailureKind
from flowmesh_core.lifecycle_states import StepState
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.protocol.results import ActionResult, Provenance
from flowmesh_core.units import Digest


class Verdict(StrEnum):
    """What became of one audited action."""

    SAME = "same"
    DIFFERS = "differs"
    FAILED = "failed"
    NOT_CHECKABLE = "not-checkable"


NO_VERDICT = frozenset(
    {
        FailureKind.LOST,
        FailureKind.PREEMPTED,
        FailureKind.DRAINED,
        FailureKind.STORE,
        FailureKind.MISSING_BLOB,
        FailureKind.BUDGET,
        FailureKind.DEADLINE,
        FailureKind.CANCELLED,
        FailureKind.UPSTREAM,
        FailureKind.UNPLACEABLE,
    }
)
"""Failures that say nothing of whether a result would have repeated."""


class AuditCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """An action to be made again.

    Attributes:
        path: its step in the audit's run; ``step`` and ``chunk`` in the audited one (-1: whole).
        scope: where its record stands.
        bump: of its signature class, in the audited run.
        outputs: published digests by port.
        published_by: where they were made.
    """

    path: str
    step: str
    chunk: int
    action_id: Digest
    scope: str
    engine: str
    contract: int
    implementation: int
    determinism: str
    signature_class: Digest
    fields: dict[str, Any]
    outputs: dict[str, Digest]
    published_by: Provenance
    published_s: float
    bump: int = 0


class AuditSkip(msgspec.Struct, frozen=True):
    """An action that was drawn and cannot be checked, and why."""

    step: str
    chunk: int
    action_id: Digest
    engine: str
    reason: str


class AuditOrder(msgspec.Struct, frozen=True):
    """What was asked for and drawn; stands in the audit's spec.

    Attributes:
        share: of the ``eligible`` actions; ``seed`` of the draw.
        passed_over: actions by class that do not promise to repeat.
    """

    run_uid: str
    run: str
    namespace: str
    share: float
    seed: int
    created_s: float
    eligible: int
    checks: tuple[AuditCheck, ...]
    unchecked: tuple[AuditSkip, ...]
    passed_over: dict[str, int]


class AuditFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found of one action.

    Attributes:
        again: digests by port of what was made now, by ``again_by``.
        ports: those whose digests differ.
        quarantines: whether its signature class is to be quarantined for it.
        detail: why there is no verdict, or why a difference does not quarantine.
    """

    check: AuditCheck
    verdict: Verdict
    again: dict[str, Digest] = {}
    again_by: Provenance = Provenance()
    ports: tuple[str, ...] = ()
    quarantines: bool = False
    detail: str = ""


class AuditReport(msgspec.Struct, frozen=True):
    """The outcome of an audit: ``runs/<uid>/audit``.

    Attributes:
        uid: of the audit's own run; empty where nothing could be checked.
        phase: a ``Phase``; ``cut_off`` says what ended it before its time.
        counts: actions by verdict, unchecked ones included.
        quarantined: signature classes that it put into quarantine.
        paid_nanousd: by the one who asked for it, as the receipt of ``uid`` says.
    """

    uid: str
    order: AuditOrder
    phase: str
    findings: tuple[AuditFinding, ...] = ()
    counts: dict[str, int] = {}
    quarantined: tuple[Digest, ...] = ()
    paid_nanousd: int = 0
    ended_s: float = 0.0
    cut_off: str = ""


def findings_of(order: AuditOrder, run: Run) -> tuple[AuditFinding, ...]:
    """Compares what an audit's run has made with what was published."""
    return tuple(_finding(check, run.steps[check.path]) for check in order.checks)


def counts_of(order: AuditOrder, findings: Sequence[AuditFinding]) -> dict[str, int]:
    """Actions by verdict, every verdict named."""
    found = Counter(f.verdict for f in findings)
    found[Verdict.NOT_CHECKABLE] += len(order.unchecked)
    return {verdict.value: found[verdict] for verdict in Verdict}


def _finding(check: AuditCheck, step: StepRun) -> AuditFinding:
    part = step.parts.get(0)
    result = part.result if part is not None else None
    if step.state is StepState.COMPLETED and result is not None:
        return _compared(check, result)
    failure = step.failure
    if failure is None or failure.kind in NO_VERDICT:
        reason = failure.message if failure is not None else f"it was {step.state.lower()}"
        return AuditFinding(check, Verdict.NOT_CHECKABLE, detail=reason)
    return AuditFinding(check, Verdict.FAILED, detail=f"{failure.kind}: {failure.message}")


def _compared(check: AuditCheck, result: ActionResult) -> AuditFinding:
    again = {port: a.digest for port, a in result.outputs.items()}
    ports = sorted(p for p in {*again, *check.outputs} if again.get(p) != check.outputs.get(p))
    by = result.provenance
    if not ports:
        return AuditFinding(check, Verdict.SAME, again, by)
    elsewhere = _elsewhere(check, by)
    return AuditFinding(
        check, Verdict.DIFFERS, again, by, tuple(ports), quarantines=not elsewhere, detail=elsewhere
    )


def _elsewhere(check: AuditCheck, by: Provenance) -> str:
    """Why a seeded difference says nothing: it was made on other devices or by other libraries."""
    if check.determinism == Determinism.EXACT:
        return ""
    before = check.published_by
    if before.device_class != by.device_class:
        return f"published on {before.device_class}, made again on {by.device_class}"
    # A host that had served others may have imported more: only versions can tell.
    changed = [
        f"{name} {version}, then {by.libraries[name]}"
        for name, version in sorted(before.libraries.items())
        if by.libraries.get(name, version) != version
    ]
    return f"made with {'; '.join(changed)}" if changed else ""
