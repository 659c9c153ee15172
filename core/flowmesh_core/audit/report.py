"""Compares the results of an audit with the published ones."""

from collections import Counter
from collections.abc import Sequence

from flowmesh_api.v1.audit import AuditCheck, AuditFinding, AuditOrder, Provenance
from flowmesh_api.v1.enums import StepState, Verdict
from flowmesh_core.audit.provenance import provenance_of
from flowmesh_core.catalog.contract import Determinism
from flowmesh_core.errors import FailureKind
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.protocol.results import ActionResult

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
"""Failures that do not show whether a result would have repeated."""


def findings_of(order: AuditOrder, run: Run) -> tuple[AuditFinding, ...]:
    """Returns the findings of an audit's run, one per check."""
    return tuple(_finding(check, run.steps[check.path]) for check in order.checks)


def counts_of(order: AuditOrder, findings: Sequence[AuditFinding]) -> dict[str, int]:
    """Returns the number of actions by verdict, with every verdict named."""
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
    reproduced: dict[str, str] = {port: a.digest for port, a in result.outputs.items()}
    ports = sorted(
        p for p in {*reproduced, *check.outputs} if reproduced.get(p) != check.outputs.get(p)
    )
    by = provenance_of(result.provenance)
    if not ports:
        return AuditFinding(check, Verdict.SAME, reproduced, by)
    elsewhere = _elsewhere(check, by)
    return AuditFinding(
        check,
        Verdict.DIFFERS,
        reproduced,
        by,
        tuple(ports),
        quarantines=not elsewhere,
        detail=elsewhere,
    )


def _elsewhere(check: AuditCheck, by: Provenance) -> str:
    """Why a seeded difference proves nothing: other devices or other libraries made it."""
    if check.determinism == Determinism.EXACT:
        return ""
    before = check.published_by
    if before.device_class != by.device_class:
        return f"published on {before.device_class}, reproduced on {by.device_class}"
    # A host that ran other engines may have more libraries, so only versions are compared.
    changed = [
        f"{name} {version}, then {by.libraries[name]}"
        for name, version in sorted(before.libraries.items())
        if by.libraries.get(name, version) != version
    ]
    return f"made with {'; '.join(changed)}" if changed else ""
