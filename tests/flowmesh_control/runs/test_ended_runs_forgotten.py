"""What admission knows of unfinished runs does not grow with the runs that have ended."""

from tests.flowmesh_control.fabric import Fabric

from flowmesh_control.quotas.doubling import LEAST
from flowmesh_control.records.run_records import SpecRecord
from flowmesh_control.runs.submitters import Submitters
from flowmesh_core.identity import digest_bytes

RUNS = 5 * LEAST


async def test_admission_and_quota_forget_runs_that_have_ended(fabric: Fabric) -> None:
    services = fabric.control.services
    for number in range(RUNS):  # none of these is under way
        digest = digest_bytes(str(number).encode())
        services.admission.remember(SpecRecord(f"u{number}", "n", "team-a", digest, 0.5, {}))
    assert len(services.admission._by_digest) <= LEAST
    assert len(services.run_quota._accepted["team-a"]) <= LEAST


def test_submitters_of_ended_runs_are_forgotten_and_those_of_others_stay() -> None:
    submitters = Submitters(lambda uid: uid == "open")
    submitters.add("open", "first")
    for number in range(RUNS):
        submitters.add(f"u{number}", "one")
    assert len(submitters._of_run) <= LEAST + 1
    submitters.add("open", "second")
    assert submitters.leave("open", "second")
    assert not submitters.leave("open", "first")
