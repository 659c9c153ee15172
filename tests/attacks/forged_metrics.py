"""A tenant's own step that publishes, as its metrics, whatever JSON the tenant wants."""

from collections.abc import Mapping
from typing import Any

from tests.attacks.tenants import ATTACKER, NAMESPACES, Tenants
from tests.flowmesh_control.fabric import workflow


async def publish(house: Tenants, metrics: Mapping[str, Any]) -> str:
    """Runs the step; the reference that the attacker is shown for its metrics."""
    step = {
        "name": "forge",
        "uses": "code.python",
        "with": {
            "code": "def main(metrics):\n    return [], metrics",
            "args": {"metrics": dict(metrics)},
        },
    }
    house.token = f"{ATTACKER}-token"
    document = workflow(
        "forge", {"steps": [step], "outputs": {"m": "forge.metrics"}}, NAMESPACES[ATTACKER]
    )
    uid = await house.submit(document)
    ended = await house.ended(uid)
    assert ended.phase == "Succeeded", ended
    return str(ended.outputs["m"]["reference"])


async def read_as(house: Tenants, kind: str, reference: str) -> list[tuple[int, bytes]]:
    """Every way by which the attacker may ask for a reference as another kind of content."""
    namespace = NAMESPACES[ATTACKER]
    renamed = reference.replace("metrics", kind, 1)
    former = f"cas:{reference.rpartition(':')[2]}"
    answers = [
        await house.answer(
            ATTACKER, f"/v1/content?reference={given}&kind={kind}&namespace={namespace}"
        )
        for given in (reference, renamed, former)
    ]
    for given in (reference, renamed, former):
        answers.append(await _submitted(house, {kind: given}, {}))
        local = "./x.jsonl" if kind == "dataset" else "./x"
        answers.append(await _submitted(house, {kind: local}, {"stolen": given}))
    return answers


async def _submitted(
    house: Tenants, source: Mapping[str, str], uploads: Mapping[str, str]
) -> tuple[int, bytes]:
    """The answer to a workflow that gives back its input."""
    spec = {
        "inputs": {"stolen": source},
        "steps": [{"name": "s", "uses": "test.noop"}],
        "outputs": {"stolen": "inputs.stolen"},
    }
    body = {"document": workflow("read", spec, NAMESPACES[ATTACKER]), "uploads": uploads}
    headers = {"Authorization": f"Bearer {ATTACKER}-token"}
    async with house.http.post(
        f"{house.control.url}/v1/runs", headers=headers, json=body
    ) as response:
        return response.status, await response.read()
