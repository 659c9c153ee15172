"""Attacker: C, user code whose service calls it trusted, so that it runs outside the sandbox.
Action: asks for a replica on workers of a pool of trust 1, whose owner allows trusted code.
Must not happen: the pool gets it; a pool of trust 2 does, and `fmesh services why` says so.
"""

import msgspec
import pytest
from tests.attacks.by_hand import place, until
from tests.attacks.stored_services import apply, served, with_hub
from tests.flowmesh_control.derived_work import ask

from flowmesh_api.v1.services import ServiceReasons
from flowmesh_core.catalog.builtin.code import COMPONENT

pytestmark = pytest.mark.slow
TRUST = {"good": 2, "low": 1}
SHAPE = {
    "engines": {COMPONENT.name: COMPONENT.versions},
    "variants": (),
    "allows_user_code": True,
    "sandbox": "userns",
}


def service(name: str, *, trusted: bool) -> dict[str, object]:
    code = {"code": "def compute(batch):\n    return batch\n"}
    spec = {
        "components": {"only": {"python": code, "trusted": trusted}},
        "stages": [{"name": "one", "component": "only", "inputs": {"q": "request.q"}}],
        "reply": {"out": "one"},
    }
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": spec,
    }


async def test_trusted_code_is_placed_in_pools_of_enough_trust_only() -> None:
    async with place(lambda pool: TRUST[pool]) as there:
        low = await with_hub(there, "low", "low", trust=3, **SHAPE)
        await apply(there, service("trusted", trusted=True))
        await apply(there, service("plain", trusted=False))
        await until(lambda: served(low) == {"team-a/plain"})
        status, body = await ask(there, "GET", "/v1/services/trusted/why?namespace=team-a")
        assert status == 200
        (component,) = msgspec.json.decode(body, type=ServiceReasons).components
        (replica,) = component.replicas
        assert replica.reason.startswith("its code is trusted")
        assert "needs a pool of trust 2: raise spec.trust of a pool" in replica.reason
        good = await with_hub(there, "good", "good", **SHAPE)
        await until(lambda: served(good) == {"team-a/trusted"})
        assert served(low) == {"team-a/plain"}
