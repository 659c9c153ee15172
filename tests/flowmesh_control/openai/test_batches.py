"""OpenAI's own client against a control plane and a worker: from the file to the results."""

import pytest
from openai import AsyncOpenAI
from tests.flowmesh_control.fabric import Fabric
from tests.flowmesh_control.openai.batches import (
    created,
    line,
    lines_of,
    reaches,
    texts_of,
)

pytestmark = pytest.mark.slow


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
    status = await fabric.call("GET", f"/v1/runs/{batch.id.replace('_', '-')}")
    assert status["phase"] == "Succeeded"
    assert status["budget_nanousd"] == 5_000_000_000
