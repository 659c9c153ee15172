"""A tenant's step that publishes arbitrary JSON as its metrics."""

from collections.abc import Mapping
from typing import Any

from tests.attacks.tenants import ATTACKER, NAMESPACES, Tenants
from tests.flowmesh_control.fabric import workflow


async def publish(fabric: Tenants, metrics: Mapping[str, Any]) -> str:
    """Runs the step; returns the attacker's reference to its metrics."""
    step = {
        "name": "forge",
        "uses": "code.python",
        "with": {
            "code": "def main(metrics):\n    return [], metrics",
            "args": {"metrics": dict(metrics)},
        },
    }
    fabric.token = f"{ATTACKER}-token"
    document = workflow(
        "forge", {"steps": [step], "outputs": {"m": "forge.metrics"}}, NAMESPACES[ATTACKER]
    )
    uid = await fabric.submit(document)
    ended = await fabric.ended(uid)
    assert ended.phase == "Succeeded", ended
    return str(ended.outputs["m"]["reference"])


async def read_as(fabric: Tenants, kind: str, reference: str) -> list[tuple[int, bytes]]:
    """Tries every way to read a reference as another kind of content; returns the answers."""
    namespace = NAMESPACES[ATTACKER]
    renamed = reference.replace("metrics", kind, 1)
    former = f"cas:{reference.rpartition(':')[2]}"
    answers = [
        await fabric.answer(
            ATTACKER, f"/v1/content?reference={given}&kind={kind}&namespace={namespace}"
        )
        for given in (reference, renamed, former)
    ]
    for given in (reference, renamed, former):
        answers.append(await _submitted(fabric, {kind: given}, {}))
        local = "./x.jsonl" if kind == "dataset" else "./x"
        answers.append(await _submitted(fabric, {kind: local}, {"stolen": given}))
    return answers


async def _submitted(
    fabric: Tenants, source: Mapping[str, str], uploads: Mapping[str, str]
) -> tuple[int, bytes]:
    """Submits a workflow that returns its input; returns the answer."""
    spec = {
        "inputs": {"stolen": source},
        "steps": [{"name": "s", "uses": "test.noop"}],
        "outputs": {"stolen": "inputs.stolen"},
    }
    body = {"document": workflow("read", spec, NAMESPACES[ATTACKER]), "uploads": uploads}
    headers = {"Authorization": f"Bearer {ATTACKER}-token"}
    async with fabric.http.post(
        f"{fabric.control.url}/v1/runs", headers=headers, json=body
    ) as response:
        return response.status, await response.read()
