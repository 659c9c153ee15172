"""Attacker: T3, a worker that answers a batch of a tenant.

Action: writes rows that are not responses, or too many, and counts that are not numbers.
Must not happen: the tenant cannot read its batch, the other responses, or which rows are wrong.
"""

import json
from typing import Any

import msgspec
from tests.attacks.by_hand import end_of, place
from tests.flowmesh_control.derived_work import engine
from tests.flowmesh_control.openai.batches import created, line, lines_of, reaches
from tests.flowmesh_control.openai.conftest import SETTINGS, client_of

from flowmesh_core.dataset import encode_manifest
from flowmesh_core.dataset.schema import ColumnType, Schema
from flowmesh_core.identity import canonical_bytes
from flowmesh_core.machine.step_results import dataset_artifact, metrics_artifact
from flowmesh_core.protocol.messages import Assignment, AttemptEnd
from flowmesh_store.datasets import as_single_chunk

RIGHT = {"status_code": 200, "body": {"id": "chatcmpl-1", "choices": []}}
WRONG: list[Any] = ["text", 5, None, {}, {"status_code": "200", "body": {}}]
WRONG += [{"status_code": 200, "body": []}, {"status_code": True, "body": {}}]
SCHEMA = Schema.of({"url": ColumnType.STRING, "body": ColumnType.JSON, "response": ColumnType.JSON})


def answered(given: Assignment, responses: list[Any], completed: Any) -> AttemptEnd:
    """The end of an attempt with these responses."""
    rows = [{"url": "u", "body": {}, "response": r} for r in responses]
    manifest, blobs = as_single_chunk(rows, SCHEMA)
    made = dataset_artifact(manifest)
    counts = metrics_artifact({"completed": completed, "failed": 0})
    end = end_of(given.attempt_id, given.action_id, token=given.token)
    inline = {made.blob: encode_manifest(manifest), counts.blob: canonical_bytes(counts.value)}
    outputs = {"rows": made, "metrics": counts}
    return msgspec.structs.replace(end, outputs=outputs, inline=inline | blobs)


async def test_wrong_rows_are_errors_that_name_them_and_the_others_are_read() -> None:
    async with (
        place(settings=SETTINGS) as there,
        client_of(there.control.url) as client,
    ):
        shape = {"engines": {"test.openai": engine("test.openai")}}
        worker = await there.join("worker", shape=shape)
        lines = [line(f"q{i}") for i in range(len(WRONG) + 1)]
        batch = await created(client, lines)
        [given] = await worker.given()
        await worker.sync(ended=(answered(given, [*WRONG, RIGHT, RIGHT], len(lines)),))
        completed = await reaches(client, batch.id, "completed")
        *wrong, right = await lines_of(client, completed.output_file_id)
        assert right["custom_id"] == lines[-1]["custom_id"]
        assert right["response"]["body"] == RIGHT["body"]
        assert [w["custom_id"] for w in wrong] == [given["custom_id"] for given in lines[:-1]]
        for number, found in enumerate(wrong):
            assert found["response"] is None
            assert found["error"]["code"] == "invalid_response"
            place_of = f"row {number} of {completed.output_file_id}"
            assert place_of in found["error"]["message"], json.dumps(found)


async def test_counts_that_are_not_numbers_hide_no_batch() -> None:
    async with (
        place(settings=SETTINGS) as there,
        client_of(there.control.url) as client,
    ):
        shape = {"engines": {"test.openai": engine("test.openai")}}
        worker = await there.join("worker", shape=shape)
        batch = await created(client, [line("q")])
        [given] = await worker.given()
        await worker.sync(ended=(answered(given, [RIGHT], "many"),))
        completed = await reaches(client, batch.id, "completed")
        assert [b.id async for b in client.batches.list()] == [batch.id]
        assert completed.request_counts is not None
        assert completed.request_counts.to_dict() == {"total": 1, "completed": 0, "failed": 1}
