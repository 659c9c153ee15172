"""After a return to an older release: records that the newer one wrote are kept, none is guessed.

No release is tagged yet that could be run against these records; ``NEWER`` stands for what the
next one may write.
"""

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.flowmesh_control.fabric import Fabric, sealed
from tests.flowmesh_control.runs.test_repin import NOOP, catalog, serving, workflow

from flowmesh_api.v1.why import AttemptLine
from flowmesh_control.cache.stored_roots import artifacts_of_stored_run
from flowmesh_control.errors import NewerPlanError
from flowmesh_control.records.keys import segment_key, spec_key
from flowmesh_control.records.ledger import LedgerWriter, read_segments
from flowmesh_core.accounting.ledger_lines import StepLine, UnknownLine, decode_lines, encode_lines
from flowmesh_core.graph.plan import PLAN_LEVEL
from flowmesh_store.store import Store, open_store

NEWER = (
    b'{"type":"evaluated","time_s":1.5,"step":"a","verdict": true, "of": {"cel":"1 < 2"}}\n'
    b'{"type":"step","time_s":2.0,"step":"a","state":"COMPLETED","rounds":3}\n'
    b'{"type":"expanded","group":"g","steps":[{"type":"attempt"}]}\n'
)
"""A segment of a newer release: two lines of unknown types, one with an unknown field."""
ATTEMPT = AttemptLine(
    time_s=3.0, step="a", chunk=0, action_id="0" * 64, attempt_id="i", worker="w1",  # type: ignore[arg-type]
    incarnation="p", outcome="published", bill_nanousd=5, share_nanousd=5,
)  # fmt: skip


def test_lines_of_unknown_types_are_kept_byte_for_byte() -> None:
    lines = decode_lines(NEWER)
    assert [type(line) for line in lines] == [UnknownLine, StepLine, UnknownLine]
    again = encode_lines(lines).splitlines()
    assert again[0] == NEWER.splitlines()[0]
    assert again[2] == NEWER.splitlines()[2]


@pytest.mark.parametrize(
    "line",
    [b'{"type":"step","time_s":"x"}', b'{"time_s":1.0}', b'{"type":7}', b"[1]", b'{"type":"n'],
)
def test_a_damaged_line_is_an_error_and_not_an_unknown_line(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_lines(line)


async def test_an_older_leader_continues_after_unknown_lines_and_does_not_change_their_segment(
    store: Store,
) -> None:
    records = store.records
    await records.write(segment_key("run-1", 1, 1), NEWER)
    ledger = LedgerWriter(records, epoch=2)
    assert len(await ledger.open("run-1")) == 3  # the accounts count all lines
    ledger.append("run-1", ATTEMPT)
    await ledger.flush("run-1")
    kept = await records.read(segment_key("run-1", 1, 1))
    assert kept is not None
    assert kept.data == NEWER
    lines = (await read_segments(records, "run-1")).lines
    assert [type(line) for line in lines] == [UnknownLine, StepLine, UnknownLine, AttemptLine]


@pytest.fixture
async def uid(tmp_path: Path) -> str:
    async with serving(tmp_path, catalog(1)) as fabric:
        return await fabric.submit(workflow("newer", NOOP))


async def test_a_run_with_unknown_lines_continues(tmp_path: Path, uid: str) -> None:
    await _append(tmp_path, uid)
    async with serving(tmp_path, catalog(1)) as fabric:
        assert (await fabric.call("GET", f"/v1/runs/{uid}"))["phase"] == "Running"
        assert (await fabric.call("GET", f"/v1/runs/{uid}/receipt"))["paid_nanousd"] == 0
        await fabric.call("POST", f"/v1/runs/{uid}/cancel")
        assert (await fabric.ended(uid)).phase == "Cancelled"


async def test_a_plan_of_a_higher_level_waits_with_a_reason_and_can_be_cancelled(
    tmp_path: Path, uid: str
) -> None:
    await _raise_level(tmp_path, uid, PLAN_LEVEL + 1)
    async with serving(tmp_path, catalog(1)) as fabric:
        status = await fabric.call("GET", f"/v1/runs/{uid}")
        assert (status["phase"], status["reason"]) == ("Suspended", "newer-plan")
        assert f"level {PLAN_LEVEL + 1}" in status["message"]
        assert "newer release" in status["remedy"]
        refused = await fabric.call("POST", f"/v1/runs/{uid}/repin", status=409)
        assert "newer release" in refused["error"]["remedy"]
        await _refused_everywhere(fabric, uid)
        assert (await fabric.call("POST", f"/v1/runs/{uid}/cancel"))["phase"] == "Cancelled"


async def test_a_plan_of_this_level_runs(tmp_path: Path, uid: str) -> None:
    await _raise_level(tmp_path, uid, PLAN_LEVEL)
    async with serving(tmp_path, catalog(1)) as fabric:
        assert (await fabric.call("GET", f"/v1/runs/{uid}"))["phase"] == "Running"


async def test_nothing_is_deleted_while_a_run_has_a_plan_of_a_higher_level(
    tmp_path: Path, uid: str
) -> None:
    await _raise_level(tmp_path, uid, PLAN_LEVEL + 1)
    with pytest.raises(NewerPlanError):
        await artifacts_of_stored_run(sealed(open_store(tmp_path / "store")), uid, ())


async def _refused_everywhere(fabric: Fabric, uid: str) -> None:
    for path in ("trace", "lineage?name=x"):
        answer = await fabric.call("GET", f"/v1/runs/{uid}/{path}", status=409)
        assert f"level {PLAN_LEVEL + 1}" in answer["error"]["message"]


async def _append(root: Path, uid: str) -> None:
    records = sealed(open_store(root / "store"))
    await records.write(segment_key(uid, 1, 1), NEWER)


async def _raise_level(root: Path, uid: str, level: int) -> None:
    """Gives the run's plan a level, and above this release's a source that it cannot decode."""
    records = sealed(open_store(root / "store"))
    record = await records.read(spec_key(uid))
    assert record is not None
    spec: dict[str, Any] = copy.deepcopy(msgspec.json.decode(record.data))
    spec["pins"]["level"] = level
    if level > PLAN_LEVEL:
        spec["pins"]["plan"]["outputs"]["x"] = [{"type": "round", "group": "g"}]
    await records.write(spec_key(uid), msgspec.json.encode(spec), if_match=record.etag)
