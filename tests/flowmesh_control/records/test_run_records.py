"""A run's line in a list, and its stored plan."""

import msgspec
from tests.golden.wire import stored

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.records.run_records import decode_record, spec_decoder, summary_of
from flowmesh_store.ports import Record


def test_a_run_that_has_not_ended_is_listed_with_the_time_0() -> None:
    status = RunStatus("uid-1", "weekly", "team-a", "Running", 12.5)
    assert b'"ended_s":0.0' in msgspec.json.encode(summary_of(status))


def test_a_plan_that_was_stored_with_the_former_field_strict_is_read_as_without_it() -> None:
    now = stored()["records"]["spec"]
    before = now.replace(b'"ignored_inputs":["note"]', b'"ignored_inputs":["note"],"strict":true')
    assert before != now
    assert decode_record(spec_decoder, "k", Record(before, "")) == decode_record(
        spec_decoder, "k", Record(now, "")
    )
