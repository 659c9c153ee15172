"""What follows from a finding of a sampled audit; the effects are the control plane's."""

from dataclasses import dataclass
from enum import StrEnum

from flowmesh_api.v1.audit import AuditFinding, Provenance
from flowmesh_api.v1.enums import Verdict
from flowmesh_core.audit.majority import OddOne, odd_one


class Consequence(StrEnum):
    """What is done."""

    NOTHING = "the results agree, or show nothing"
    ASK_A_THIRD = "a third worker makes it"
    DISBELIEVE = "a worker is cordoned and all its results are withheld"
    WITHHOLD = "the published result is withheld, and no worker is blamed"
    QUARANTINE = "so, and its signature class is quarantined"


@dataclass(frozen=True, slots=True)
class SampleDecision:
    """A consequence; ``worker`` is the one that is disbelieved, else None; ``reason`` why."""

    consequence: Consequence
    worker: Provenance | None = None
    reason: str = ""


def decision_of(finding: AuditFinding) -> SampleDecision:
    """Returns what follows from what a second worker gave, or after a doubt a third one."""
    check = finding.check
    if check.doubted is None:
        differs = _differs(finding)
        return SampleDecision(Consequence.ASK_A_THIRD if differs else Consequence.NOTHING)
    if finding.verdict is Verdict.SAME and _by_another(finding):
        third = check.outputs
    elif _differs(finding):
        third = finding.again
    else:
        reason = f"a third worker did not make it ({finding.detail or 'none was left'})"
        return SampleDecision(Consequence.WITHHOLD, reason=reason)
    second = check.doubted
    odd = odd_one(check.outputs, second.outputs, third)
    if odd is OddOne.NONE:
        kind = Consequence.QUARANTINE if finding.quarantines else Consequence.WITHHOLD
        return SampleDecision(kind, reason="a third worker gave yet another result")
    liar = second.made_by if odd is OddOne.SECOND else check.published_by
    reason = f"two workers gave another result of action {check.action_id[:12]}"
    return SampleDecision(Consequence.DISBELIEVE, liar, reason)


def _differs(finding: AuditFinding) -> bool:
    """Whether another worker gave another result, and one that shows something.

    A seeded result of another device class or other libraries shows nothing.
    """
    return finding.verdict is Verdict.DIFFERS and not finding.detail and _by_another(finding)


def _by_another(finding: AuditFinding) -> bool:
    """Whether none of the workers that had made it made it again, since the others had left."""
    check, by = finding.check, finding.again_by
    made_by = [check.published_by]
    if check.doubted is not None:
        made_by.append(check.doubted.made_by)
    return all((by.pool, by.worker) != (m.pool, m.worker) for m in made_by)
