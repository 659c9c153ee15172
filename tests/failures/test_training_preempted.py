"""PPO training that loses its engine host, then its worker, with the same result as without."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.failures.observe import hosts_of, ledger, until
from tests.failures.uploads import upload_model, upload_rows
from tests.flowmesh_control.fabric import Fabric, machine_of, workflow
from tests.flowmesh_control.test_end_to_end import accounts

from flowmesh_api.v1.why import AttemptLine
from flowmesh_core.machine import checkpoints

pytestmark = [pytest.mark.nightly, pytest.mark.model]

STEPS = 24
BATCH = 4
ROWS = [{"q": f"{a}+{b}"} for a in range(4) for b in range(4)]
WITHIN_S = 400.0


@pytest.fixture(scope="module")
def models(tiny_policies: Path) -> Path:
    return tiny_policies


def ppo() -> dict[str, Any]:
    step = {
        "name": "tune",
        "uses": "train.ppo",
        "inputs": {"model": "inputs.policy", "reward": "inputs.judge", "rows": "inputs.rows"},
        "with": {
            "prompt": "{{ q }}=",
            "total_episodes": STEPS * BATCH,
            "per_device_train_batch_size": BATCH,
            "response_length": 24,
            "num_mini_batches": 2,
            "missing_eos_penalty": 1.0,
            "learning_rate": 1e-2,
            "save_steps": 1,
            "use_peft": True,
        },
        "resources": {"memory": "1500Mi"},
    }
    inputs = {n: {"model": f"./{n}"} for n in ("policy", "judge")}
    spec = {"inputs": {**inputs, "rows": {"dataset": "./rows.jsonl"}}, "steps": [step]}
    outputs = {"adapter": "tune.adapter", "curve": "tune.curve", "metrics": "tune.metrics"}
    return {**spec, "outputs": outputs}


async def submit(fabric: Fabric, tenant: str, models: Path) -> str:
    uploads = {n: await upload_model(fabric, tenant, models / n) for n in ("policy", "judge")}
    uploads["rows"] = await upload_rows(fabric, tenant, ROWS)
    return await fabric.submit(workflow("ppo", ppo(), tenant), namespace=tenant, uploads=uploads)


async def digests(fabric: Fabric, uid: str) -> dict[str, str]:
    status = await fabric.ended(uid, within_s=WITHIN_S)
    assert status.phase == "Succeeded", status
    return {name: str((o or {})["digest"]) for name, o in status.outputs.items()}


def published(fabric: Fabric, uid: str) -> AttemptLine:
    lines = [line for line in ledger(fabric, uid) if isinstance(line, AttemptLine)]
    (line,) = [line for line in lines if line.outcome == "published"]
    return line


async def test_ppo_resumes_after_a_killed_host_and_a_preempted_worker_with_the_same_bytes(
    fabric: Fabric, models: Path
) -> None:
    state = machine_of(fabric.control).state
    first = fabric.worker("local-w1", "--grace", "20")
    uid = await submit(fabric, "team-a", models)

    async def kept() -> bool:
        return bool(checkpoints.roots(state))

    await until(kept, WITHIN_S)
    (host,) = hosts_of(first)
    host.kill()

    async def goes_on(worker: str, done: float) -> bool:
        held = state.workers[worker].attempts.values() if worker in state.workers else ()
        return any(a.resumed and a.phase == "running" and a.done > done for a in held)

    await until(lambda: goes_on("local-w1", 2), WITHIN_S)
    fabric.worker("local-w2")
    first.terminate()
    assert await asyncio.to_thread(first.wait, 300) == 0
    await until(lambda: goes_on("local-w2", 3), WITHIN_S)
    interrupted = await digests(fabric, uid)
    assert published(fabric, uid).worker == "local-w2"

    # Another tenant shares nothing with the first, so its training begins at the first step.
    whole = await submit(fabric, "team-b", models)
    assert await digests(fabric, whole) == interrupted
    totals = await accounts(fabric)
    assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd
