"""Attacker: T2, a tenant that may create services in its own namespace.
Action: shows, lists, replaces and deletes a service of another, and serves its model by reference.
Must not happen: it sees or changes anything of the other's, or loads content that it may not read.
"""

from pathlib import Path
from typing import Any

from tests.attacks.tenants import ATTACKER, OWNER, tenants
from tests.blob_views import blobs_of
from tests.flowmesh_control.rights import EDIT

from flowmesh_store.tree import store_tree

RIGHTS = {
    OWNER: {"team-a": EDIT, "team-a/flowmeshservices": EDIT},
    ATTACKER: {"team-b": EDIT, "team-b/flowmeshservices": EDIT},
}
PATH = "/v1/services/ask?namespace=team-a"


def body(namespace: str, model: str = "smollm2-135m-instruct") -> dict[str, Any]:
    component = {"uses": "llm.generate", "inputs": {"model": "inputs.base"}}
    spec = {"inputs": {"base": {"model": model}}, "components": {"llm": component}}
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "ask", "namespace": namespace},
        "spec": spec,
    }
    return {"document": document}


async def test_a_service_is_its_namespaces_own(tmp_path: Path) -> None:
    async with tenants(tmp_path, RIGHTS) as fabric:
        await fabric.ask(OWNER, "POST", "/v1/services", body=body("team-a"))
        await fabric.ask(ATTACKER, "GET", PATH, status=403)
        await fabric.ask(ATTACKER, "GET", "/v1/services?namespace=team-a", status=403)
        for query in ("all_namespaces=1", "namespace=team-b&all_namespaces=1"):
            await fabric.ask(ATTACKER, "GET", f"/v1/services?{query}", status=403)
        await fabric.ask(ATTACKER, "DELETE", PATH, status=403)
        await fabric.ask(ATTACKER, "POST", "/v1/services", body=body("team-a"), status=403)
        disguised = body("team-b") | {"namespace": "team-a"}
        await fabric.ask(ATTACKER, "POST", "/v1/services", body=disguised, status=403)
        own = await fabric.ask(ATTACKER, "POST", "/v1/services", body=body("team-b"))
        assert own["namespace"] == "team-b"
        seen = await fabric.ask(ATTACKER, "GET", "/v1/services?namespace=team-b")
        assert [s["namespace"] for s in seen["services"]] == ["team-b"]
        assert (await fabric.ask(OWNER, "GET", PATH))["generation"] == 1
        await fabric.ask(OWNER, "DELETE", PATH)


async def test_a_reference_of_another_tenant_gives_no_model(tmp_path: Path) -> None:
    async with tenants(tmp_path, RIGHTS) as fabric:
        services = fabric.control.services
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "config.json").write_text("{}")
        tree = await store_tree(blobs_of(services.store), tmp_path / "model")
        scope = services.policies.scopes("team-a").private
        reference = services.uploads._references.issue(scope, "model", tree.digest)
        wanted = body("team-b", reference)
        answer = await fabric.ask(ATTACKER, "POST", "/v1/services", body=wanted, status=422)
        assert answer["error"]["problems"][0]["path"] == "spec.inputs.base"
        own = await fabric.ask(OWNER, "POST", "/v1/services", body=body("team-a", reference))
        assert own["phase"] == "Pending"
