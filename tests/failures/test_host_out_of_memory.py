"""Eight tenants' requests in one engine host, one of which exceeds its memory.

The cause's eight long prompts are padded to one length, so that their batch materialises a matrix
of attention for each: on two layers of 64 numbers that takes over a gigabyte for some seconds, in
company or alone. Nothing about it is staged but the prompts.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.failures.observe import ledger, until
from tests.failures.uploads import upload_model, upload_rows
from tests.flowmesh_control.fabric import Fabric, machine_of, workflow
from tests.flowmesh_control.test_end_to_end import accounts, paid

from flowmesh_api.v1.why import AttemptLine

pytestmark = [pytest.mark.nightly, pytest.mark.model]

MEMORY_MIB = 700
"""What the step states: more than torch, the model and the others' requests take."""
TENANTS = [f"team-{n}" for n in range(7)]
CAUSE = "team-cause"
LONG = [{"text": "the quick brown fox" + " fox" * (3800 + 30 * n)} for n in range(8)]


@pytest.fixture(scope="module")
def model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a long context (it has no weights for positions)."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 16384
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def asking(samples: int, max_tokens: int, priority: int) -> dict[str, Any]:
    step = {
        "name": "ask",
        "uses": "llm.generate",
        "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
        "with": {
            "prompt": "{{ text }}",
            "samples": samples,
            "maxTokens": max_tokens,
            "dtype": "float32",
            "implementation": "transformers",
            "batchInvariant": False,
        },
        "resources": {"memory": f"{MEMORY_MIB}Mi"},
    }
    inputs = {"base": {"model": "./tiny"}, "rows": {"dataset": "./rows.jsonl"}}
    spec = {"priority": priority, "inputs": inputs, "steps": [step]}
    return {**spec, "outputs": {"rows": "ask.rows"}}


async def submit(
    fabric: Fabric, tenant: str, model: Path, rows: list[dict[str, Any]], **asked: int
) -> str:
    uploads = {
        "base": await upload_model(fabric, tenant, model),
        "rows": await upload_rows(fabric, tenant, rows),
    }
    document = workflow("asking", asking(**asked), tenant)
    return await fabric.submit(document, namespace=tenant, uploads=uploads)


async def test_an_out_of_memory_kill_raises_the_reservation_of_only_the_action_that_caused_it(
    fabric: Fabric, model: Path
) -> None:
    state = machine_of(fabric.control).state
    uids = []
    for tenant in TENANTS:
        rows = [{"text": f"the {tenant} {n}"} for n in range(10)]
        # More requests than are drawn at once, so that none of them ends in the first batch.
        asked = {"samples": 2, "max_tokens": 120, "priority": 0}
        uids.append(await submit(fabric, tenant, model, rows, **asked))
    fabric.worker("local-w1", "--memory-mib", str(4 * MEMORY_MIB))

    async def seven_wait() -> bool:
        return "local-w1" in state.workers and len(state.workers["local-w1"].attempts) == 7

    await until(seven_wait)
    # It goes first: what is drawn next is its prompts, padded, beside some of theirs.
    cause = await submit(fabric, CAUSE, model, LONG, samples=1, max_tokens=2, priority=9)

    async def eight_run() -> bool:
        held = state.workers["local-w1"].attempts.values()
        return [a.phase for a in held] == ["running"] * 8

    await until(eight_run)
    together = dict(state.workers["local-w1"].attempts)
    signature = next(iter(together.values())).info.signature

    async def host_lost() -> bool:
        return not any(a.attempt_id in state.attempts for a in together.values())

    await until(host_lost)
    assert state.learned.reserve_mib(signature) == 0, "none of them was alone"
    spent = sum(a.charged_nanousd for a in together.values())
    assert spent > 0

    ended = [await fabric.ended(uid, within_s=400) for uid in (*uids, cause)]
    assert [status.phase for status in ended] == ["Succeeded"] * 8, ended
    # Once in company; the cause once more, alone, in a host that reserved no more than the first.
    assert [status.steps[0].attempts for status in ended] == [1] * 7 + [2]
    assert state.learned.reserve_mib(signature) > MEMORY_MIB

    for uid in (*uids, cause):
        lines = [line for line in ledger(fabric, uid) if isinstance(line, AttemptLine)]
        assert [line.outcome for line in lines] == ["published"]
        assert (await paid(fabric, uid)).paid_nanousd == lines[0].bill_nanousd > 0
    totals = await accounts(fabric)
    assert totals.unsettled_nanousd == 0
    assert totals.fabric_nanousd >= spent
    assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd
