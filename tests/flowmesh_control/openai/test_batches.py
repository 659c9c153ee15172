"""OpenAI's own client against a control plane and a worker: from the file to the results."""

from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError
from tests.flowmesh_control.fabric import Fabric
from tests.flowmesh_control.openai.batches import (
    CHAT,
    MODEL,
    created,
    line,
    lines_of,
    reaches,
    texts_of,
    uploaded,
)

pytestmark = pytest.mark.slow


async def planned(client: AsyncOpenAI, file: str, endpoint: str = CHAT) -> dict[str, Any]:
    """Returns the plan of a batch; the client has no method for it."""
    body = {"input_file_id": file, "endpoint": endpoint}
    return await client.post("/batches/plan", cast_to=dict[str, Any], body=body)


async def test_a_batch_runs_from_the_file_to_its_results(
    fabric: Fabric, client: AsyncOpenAI
) -> None:
    fabric.worker("local-w")
    requests = [line(f"r{i}") for i in range(100)]
    wrong = ["{", line("bad", priority=1), line("r1")]
    batch = await created(
        client,
        [*requests[:50], *wrong, *requests[50:], line("no", "refuse me")],
        metadata={"team": "search", "budget_usd": "5"},
    )
    assert batch.status == "validating"
    done = await reaches(client, batch.id, "completed")
    assert done.request_counts is not None
    assert done.request_counts.to_dict() == {"total": 104, "completed": 100, "failed": 4}
    output = await lines_of(client, done.output_file_id)
    assert texts_of(output) == {f"r{i}": f"r{i}" for i in range(100)}
    assert output[0]["response"]["body"]["created"] == done.created_at
    errors = await lines_of(client, done.error_file_id)
    assert [(e["custom_id"], e["response"]["status_code"]) for e in errors] == [
        (None, 400),
        ("bad", 400),
        (None, 400),
        ("no", 400),
    ]
    assert errors[1]["response"]["body"]["error"]["param"] == "priority"
    assert errors[3]["response"]["body"]["error"]["code"] is None  # the engine wrote 400
    status = await fabric.call("GET", f"/v1/runs/{batch.id.replace('_', '-')}")
    assert status["phase"] == "Succeeded"
    assert status["budget_nanousd"] == 5_000_000_000
    again = await planned(client, await uploaded(client, requests))
    assert (again["requests"], again["wrong"]) == (100, 0)
    assert again["forecast"]["hits"] > 0  # its chunks differ at the end alone


async def test_a_plan_quotes_a_start_now_and_two_windows(
    fabric: Fabric, client: AsyncOpenAI
) -> None:
    fabric.worker("local-w")
    lines = [line(f"r{i}", max_tokens=5) for i in range(40)]
    before = await planned(client, await uploaded(client, [*lines, "{"]))
    assert (before["requests"], before["wrong"]) == (40, 1)
    assert [q["completion_window"] for q in before["quotes"]] == ["now", "1h", "24h"]
    assert before["forecast"]["hits"] == 0
    batch = await created(client, lines)
    await reaches(client, batch.id, "completed")
    after = await planned(client, await uploaded(client, lines))
    assert after["forecast"]["hits"] == after["forecast"]["actions"] > 0
    assert [(q["nanousd"], q["is_met"]) for q in after["quotes"]] == [(0, True)] * 3
    with pytest.raises(BadRequestError, match="supported values"):
        await planned(client, batch.input_file_id, "/v1/responses")
    with pytest.raises(NotFoundError):
        await planned(client, "file-none")


async def test_a_batch_of_embeddings_has_a_vector_for_each_text(
    fabric: Fabric, client: AsyncOpenAI
) -> None:
    fabric.worker("local-w")
    endpoint = "/v1/embeddings"
    wanted = {"one": "a", "two": ["ab", "abc"]}
    requests = [
        {
            "custom_id": name,
            "method": "POST",
            "url": endpoint,
            "body": {"model": MODEL, "input": given},
        }
        for name, given in wanted.items()
    ]
    batch = await created(client, [*requests, line("chat")], endpoint=endpoint)
    done = await reaches(client, batch.id, "completed")
    found = {
        answer["custom_id"]: [d["embedding"] for d in answer["response"]["body"]["data"]]
        for answer in await lines_of(client, done.output_file_id)
    }
    assert found == {"one": [[1.0]], "two": [[2.0], [3.0]]}
    (wrong,) = await lines_of(client, done.error_file_id)
    assert (wrong["custom_id"], wrong["response"]["body"]["error"]["param"]) == ("chat", "url")
