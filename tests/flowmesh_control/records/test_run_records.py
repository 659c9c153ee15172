"""A run's line in a list."""

import msgspec

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.records.run_records import summary_of


def test_a_run_that_has_not_ended_is_listed_with_the_time_0() -> None:
    status = RunStatus("uid-1", "weekly", "team-a", "Running", 12.5)
    assert b'"ended_s":0.0' in msgspec.json.encode(summary_of(status))
