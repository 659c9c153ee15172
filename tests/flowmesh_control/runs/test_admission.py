"""Workflows that are handed in at the same time, and what is written of a run."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import API_TOKEN, Fabric, control_plane, sealed, workflow

from flowmesh_control.records.run_pins import accepted_pins, read_pins
from flowmesh_control.records.run_records import AcceptedRecord
from flowmesh_control.runs.admission import Admission, Submission
from flowmesh_core.errors import SpecError, StoreUnavailableError
from flowmesh_store.memory import MemoryRecords
from flowmesh_store.store import Store, open_store


def one(name: str) -> dict[str, Any]:
    return workflow(name, {"steps": [{"name": "s", "uses": "test.sleep", "with": {"seconds": 1}}]})


class Slow(MemoryRecords):
    """A store whose writes take effect when so many are under way; it may refuse them."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self._left = together
        self._all = asyncio.Event()
        self.refuses = False

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        self._left -= 1
        if self._left <= 0:
            self._all.set()
        await asyncio.wait_for(self._all.wait(), 20)
        if self.refuses:
            raise StoreUnavailableError("not now")
        return await super().write(key, data, if_match=if_match)


def admission_on(fabric: Fabric, records: MemoryRecords) -> Admission:
    admission = fabric.control.services.admission
    admission._records = records
    return admission


async def test_sixty_concurrent_equal_workflows_become_one_run(fabric: Fabric) -> None:
    async def hand_in() -> tuple[int, str]:
        async with fabric.http.post(
            f"{fabric.control.url}/v1/runs",
            data=msgspec.json.encode({"document": one("same")}),
            headers={"Authorization": f"Bearer {API_TOKEN}"},
        ) as response:
            return response.status, (await response.json())["uid"]

    answers = await asyncio.gather(*(hand_in() for _ in range(60)))
    assert Counter(status for status, _ in answers) == {201: 1, 200: 59}
    assert len({uid for _, uid in answers}) == 1


async def test_of_two_submissions_of_a_run_one_leaves_and_the_last_one_cancels_it(
    fabric: Fabric,
) -> None:
    async def submit(submitter: str, status: int = 200) -> str:
        body = {"document": one("both"), "submitter": submitter}
        accepted = await fabric.call("POST", "/v1/runs", body=body, status=status)
        return str(accepted["uid"])

    async def leave(uid: str, submitter: str) -> str:
        body = {"submitter": submitter}
        status = await fabric.call("POST", f"/v1/runs/{uid}/cancel", body=body)
        return "cancelled" if status.get("message") else str(status["phase"])

    uid = await submit("first", 201)
    assert await submit("second") == uid
    assert await leave(uid, "second") == "Running"
    assert await leave(uid, "second") == "Running"  # a request that is repeated
    assert await leave(uid, "first") == "cancelled"

    uid = await submit("", 201)  # a client that gives no name never leaves
    assert await submit("third") == uid
    assert await leave(uid, "third") == "Running"
    assert await leave(uid, "") == "cancelled"  # `fmesh cancel` ends it for all


async def test_workflows_are_written_side_by_side_and_each_in_one_write(fabric: Fabric) -> None:
    records = Slow(together=5)
    admission = admission_on(fabric, records)
    accepted = await asyncio.gather(
        *(admission.submit(Submission(one(f"other-{n}"))) for n in range(5))
    )
    keys = [key async for key in records.keys("")]
    assert sorted(keys) == sorted(f"runs/{a.uid}/spec" for a in accepted)


async def test_a_submission_without_resume_neither_waits_for_nor_joins_another(
    fabric: Fabric,
) -> None:
    admission = admission_on(fabric, Slow(together=2))
    alone = Submission(one("same"), resume=False)
    joins = Submission(one("same"))
    *apart, first, second = await asyncio.gather(
        *map(admission.submit, [alone, alone, joins, joins])
    )
    assert [a.resumed for a in apart] == [False, False]
    assert len({a.uid for a in apart}) == 2
    assert first.resumed or second.resumed


async def test_a_workflow_that_could_not_be_written_does_not_block_the_next_submission(
    fabric: Fabric,
) -> None:
    records = Slow(together=1)
    records.refuses = True
    admission = admission_on(fabric, records)
    failed = await asyncio.gather(
        *(admission.submit(Submission(one("same"))) for _ in range(3)), return_exceptions=True
    )
    assert {type(f) for f in failed} == {StoreUnavailableError}
    records.refuses = False
    assert not (await admission.submit(Submission(one("same")))).resumed


async def test_concurrent_submissions_of_one_uid_create_one_run(fabric: Fabric) -> None:
    admission = admission_on(fabric, Slow(together=1))
    accepted = await asyncio.gather(
        *(admission.submit(Submission(one("same"), uid="uid-1")) for _ in range(4))
    )
    assert Counter(a.resumed for a in accepted) == {False: 1, True: 3}
    assert {a.uid for a in accepted} == {"uid-1"}


async def test_an_unfinished_run_of_an_earlier_release_continues(tmp_path: Path) -> None:
    control = control_plane(tmp_path)
    await control.start()
    accepted = await control.services.admission.submit(Submission(one("old")))
    await control.stop()
    store = open_store(tmp_path / "store")
    pins = await _as_an_earlier_release_wrote_it(store, accepted.uid)

    again = control_plane(tmp_path)
    await again.start()
    try:
        async with ClientSession() as http:
            fabric = Fabric(tmp_path, again, http)
            status = await fabric.call("GET", f"/v1/runs/{accepted.uid}")
            assert [step["path"] for step in status["steps"]] == ["s"]
            await fabric.call("GET", f"/v1/runs/{accepted.uid}/openlineage")
            resumed = await again.services.admission.submit(Submission(one("old")))
        assert (resumed.uid, resumed.resumed) == (accepted.uid, True)
        assert await accepted_pins(sealed(store), accepted.uid) == pins
        assert await read_pins(sealed(store), accepted.uid, []) == pins
    finally:
        await again.stop()


async def _as_an_earlier_release_wrote_it(store: Store, uid: str) -> Any:
    key = f"runs/{uid}/spec"
    record = await sealed(store).read(key)
    assert record is not None
    accepted = msgspec.json.decode(record.data, type=AcceptedRecord)
    assert accepted.pins is not None
    fields = msgspec.json.decode(record.data)
    del fields["pins"]
    await sealed(store).write(f"runs/{uid}/pins", msgspec.json.encode(accepted.pins))
    await sealed(store).write(key, msgspec.json.encode(fields), if_match=record.etag)
    return accepted.pins


async def test_a_workflow_with_parameters_has_the_steps_and_the_rows_of_one_written_out(
    fabric: Fabric,
) -> None:
    """As the API server passes an object on: declarations and references are still in it."""
    rows = [{"text": "a"}, {"text": "b"}]
    spec: dict[str, Any] = {
        "params": {
            "rows": {"type": "list", "items": "object", "default": rows},
            "text": {"type": "string", "default": "b"},
            "limit": {"type": "integer", "default": 2, "minimum": 1},
            "salt": "monday",
        },
        "inputs": {
            "all": {"rows": "${params.rows}"},
            "some": {"rows": [{"text": "a"}, {"text": "${params.text}"}]},
        },
        "steps": [
            {
                "name": "find",
                "uses": "data.sql",
                "inputs": {"a": "inputs.all", "s": "inputs.some"},
                "with": {"query": "select a.text from a join s using (text) limit 2"},
                "cache": {"salt": "${params.salt}"},
                "matrix": {"n": ["${params.limit}"]},
            }
        ],
    }
    (step,) = spec["steps"]
    written = {
        "inputs": {"all": {"rows": rows}, "some": {"rows": rows}},
        "steps": [{**step, "cache": {"salt": "monday"}, "matrix": {"n": [2]}}],
    }
    compile_ = fabric.control.services.admission.compile
    filled = await compile_(Submission(workflow("same", spec)))
    other = await compile_(Submission(workflow("same", written)))
    assert filled.plan.steps == other.plan.steps
    assert filled.uploads == other.uploads
    assert filled.document["spec"]["inputs"] == spec["inputs"], "it is stored as it was written"


async def test_all_that_is_wrong_with_parameters_is_told_at_once(fabric: Fabric) -> None:
    spec = {
        "params": {"model": {"type": "string", "required": True}, "k": {"type": "integer"}},
        "inputs": {"base": {"model": "${params.model}"}},
        "steps": [{"name": "s", "uses": "test.noop", "timeout": "${params.k}m"}],
    }
    with pytest.raises(SpecError) as refused:
        await fabric.control.services.admission.compile(Submission(workflow("w", spec)))
    assert [p.path for p in refused.value.problems] == ["spec.params.model", "spec.params.k"]
