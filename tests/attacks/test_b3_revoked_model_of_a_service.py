"""Attacker: T2, a tenant whose service has a model that its namespace's owner revokes.
Action: leaves the service as it is, and applies it again.
Must not happen: a worker still serves the model, or a later leader has one load it.
"""

from tests.attacks.by_hand import place, until
from tests.attacks.stored_services import apply, model_of, served, service, shown, with_hub
from tests.flowmesh_control.derived_work import ask, revoke


async def test_a_revoked_model_is_served_no_longer() -> None:
    async with place() as there:
        worker = await with_hub(there, "w")
        reference = await model_of(there, "team-a")
        other = service("team-a", await model_of(there, "team-a", b"more"), "other")
        await apply(there, service("team-a", reference))
        await apply(there, other)
        await until(lambda: served(worker) == {"team-a/ask", "team-a/other"})
        await revoke(there, reference)
        await until(lambda: served(worker) == {"team-a/other"})
        status = await shown(there, "team-a")
        assert (status.phase, status.release) == ("Failed", "")
        assert "revoked" in status.conditions[-1].message
        again = {"document": service("team-a", reference)}
        code, answer = await ask(there, "POST", "/v1/services", json=again)
        assert code == 422, answer  # its content is gone, or revoked
        await worker.close()
        await there.lead_anew()
        worker = await with_hub(there, "w")
        await until(lambda: served(worker) == {"team-a/other"})
        # The owner stores the model again, which is new content.
        await apply(there, service("team-a", await model_of(there, "team-a")))
        await until(lambda: served(worker) == {"team-a/ask", "team-a/other"})
