"""Attacker: T1, a tenant that may create services in its own namespace.
Action: names an output of another namespace's workflow, or sends a reference as if it were found.
Must not happen: its service loads what the other published, or learns whether it exists.
"""

import pytest
from tests.attacks.by_hand import place, until
from tests.attacks.stored_services import with_hub
from tests.flowmesh_control.derived_work import ask, upload
from tests.flowmesh_control.serving.test_published_outputs import (
    ENGINES,
    applied,
    corpora,
    publish,
    service,
)

pytestmark = pytest.mark.slow


async def test_a_service_uses_outputs_of_its_own_namespace_only() -> None:
    async with place() as there:
        worker = await with_hub(there, "w", engines=ENGINES, variants=())
        published = await publish(there, worker, 1)
        for text in ("index/vectors", "team-a/index/vectors", "team-a/nothing/vectors"):
            refused = await applied(there, service("team-b", output=text), 422)
            assert b"succeeded has published" in refused or b"is of namespace team-a" in refused
        same = [
            await applied(there, service("team-b", output=f"team-a/{name}/vectors"), 422)
            for name in ("index", "other")
        ]
        assert same[0].replace(b"index", b"other") == same[1], (
            "the answer says nothing of its existence"
        )
        forged = {"document": service("team-b"), "uploads": {"vectors": published["reference"]}}
        status, body = await ask(there, "POST", "/v1/services", json=forged)
        assert (status, b"has published" in body) == (422, True)
        own = await upload(there, b'{"text":"b","embedding":[3.0]}\n', "team-b")
        assert own["digest"] != published["digest"]
        await applied(there, service())
        await until(lambda: corpora(worker) == {published["digest"]})
