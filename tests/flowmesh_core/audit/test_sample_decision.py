"""What follows from the findings of sampled audits."""

import msgspec
import pytest

from flowmesh_api.v1.audit import AuditCheck, AuditFinding, Provenance, Repetition
from flowmesh_api.v1.enums import Verdict
from flowmesh_core.audit.sample_decision import Consequence, decision_of

PUBLISHER = Provenance("a", "w", attempt_id="s/x/1-1")
SECOND, THIRD = Provenance("b", "w"), Provenance("c", "w")
FIRST_CHECK = AuditCheck(
    path="one",
    step="one",
    chunk=-1,
    action_id="x",
    scope="group-x",
    engine="test.noop",
    contract=1,
    implementation=1,
    determinism="exact",
    signature_class="y",
    fields={},
    outputs={"rows": "1"},
    published_by=PUBLISHER,
    published_s=1.0,
)
CHECK = msgspec.structs.replace(FIRST_CHECK, doubted=Repetition({"rows": "2"}, SECOND))


@pytest.mark.parametrize(
    ("finding", "consequence"),
    [
        (AuditFinding(FIRST_CHECK, Verdict.SAME, {"rows": "1"}, SECOND), Consequence.NOTHING),
        (AuditFinding(FIRST_CHECK, Verdict.FAILED), Consequence.NOTHING),
        (AuditFinding(FIRST_CHECK, Verdict.DIFFERS, {"rows": "2"}, PUBLISHER), Consequence.NOTHING),
        (
            AuditFinding(FIRST_CHECK, Verdict.DIFFERS, {"rows": "2"}, SECOND, detail="elsewhere"),
            Consequence.NOTHING,
        ),
        (
            AuditFinding(FIRST_CHECK, Verdict.DIFFERS, {"rows": "2"}, SECOND),
            Consequence.ASK_A_THIRD,
        ),
    ],
    ids=["it agrees", "it failed", "the same worker", "other libraries", "it differs"],
)
def test_a_difference_by_another_worker_asks_a_third(
    finding: AuditFinding, consequence: Consequence
) -> None:
    assert decision_of(finding).consequence is consequence


@pytest.mark.parametrize(
    ("finding", "consequence", "worker"),
    [
        (AuditFinding(CHECK, Verdict.SAME, {"rows": "1"}, THIRD), Consequence.DISBELIEVE, "b"),
        (AuditFinding(CHECK, Verdict.DIFFERS, {"rows": "2"}, THIRD), Consequence.DISBELIEVE, "a"),
        (AuditFinding(CHECK, Verdict.DIFFERS, {"rows": "3"}, THIRD), Consequence.WITHHOLD, ""),
        (
            AuditFinding(CHECK, Verdict.DIFFERS, {"rows": "3"}, THIRD, quarantines=True),
            Consequence.QUARANTINE,
            "",
        ),
        (AuditFinding(CHECK, Verdict.NOT_CHECKABLE, detail="cancelled"), Consequence.WITHHOLD, ""),
        (AuditFinding(CHECK, Verdict.FAILED, detail="engine: no"), Consequence.WITHHOLD, ""),
        (AuditFinding(CHECK, Verdict.SAME, {"rows": "1"}, PUBLISHER), Consequence.WITHHOLD, ""),
        (AuditFinding(CHECK, Verdict.DIFFERS, {"rows": "2"}, SECOND), Consequence.WITHHOLD, ""),
    ],
    ids=[
        "the third agrees with the publisher",
        "the third agrees with the second",
        "no two agree, and it proves nothing",
        "no two agree",
        "no third one made it",
        "the third failed",
        "the publisher made it again",
        "the second made it again",
    ],
)
def test_a_third_workers_result_decides(
    finding: AuditFinding, consequence: Consequence, worker: str
) -> None:
    decision = decision_of(finding)
    accused = "" if decision.worker is None else decision.worker.worker
    assert (decision.consequence, accused) == (consequence, worker)
