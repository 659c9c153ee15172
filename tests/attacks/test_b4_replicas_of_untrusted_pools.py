"""Attacker: T3, a worker of a pool of less trust than a tenant's policy asks for.
Action: offers the engine of the tenant's service, and says in its Hello that it is trusted.
Must not happen: it gets a replica, and with it the prompts of the service's callers.
"""

from tests.attacks.by_hand import place, until
from tests.attacks.stored_services import apply, model_of, served, service, shown, with_hub

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy

TRUST = {"good": 2, "low": 0}
STRICT = CachePolicy("strict", Sharing.PRIVATE, namespaces=("team-a",), min_trust=1)


async def test_a_replica_is_loaded_by_workers_of_enough_trust_only() -> None:
    async with place(lambda pool: TRUST[pool]) as there:
        await there.control.services.policies.put(STRICT)
        hostile = await with_hub(there, "hostile", "low", trust=3, price_nanousd_per_hour=1)
        for team in ("team-a", "team-b"):
            await apply(there, service(team, await model_of(there, team)))
        await until(lambda: "team-b/ask" in served(hostile))
        reason = (await shown(there, "team-a")).replicas[0].reason
        assert "a pool of trust 1 is needed" in reason
        owner = await with_hub(there, "owner")
        await until(lambda: served(owner) == {"team-a/ask"})
        assert served(hostile) == {"team-b/ask"}
