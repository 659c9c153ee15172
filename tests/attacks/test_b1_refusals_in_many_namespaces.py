"""Attacker: T2, a tenant with a token of its own namespace.
Action: sends more requests than its quota allows, each of which names another namespace.
Must not happen: it is refused as often as its connections can send.
"""

import asyncio
import time
from collections import Counter
from itertools import count
from pathlib import Path

from tests.attacks.tenants import ATTACKER, OWNER, tenants

from flowmesh_api.v1.quotas import Quota
from flowmesh_control.quotas.refusal_pace import REFUSALS_PER_S

REFUSED = 90
QUOTA = Quota(name="every", namespaces=("*",), requests_per_second=0.1, request_burst=20)


async def test_refusals_are_paced_whatever_namespaces_the_requests_name(tmp_path: Path) -> None:
    async with tenants(tmp_path) as there:
        await there.control.services.quotas.replace_all([QUOTA], {"team-a": {}, "team-b": {}})
        statuses, numbers, began_s = Counter[int](), count(), time.monotonic()

        async def send() -> None:
            while statuses[429] < REFUSED:
                path = f"/v1/quota?namespace=team-{next(numbers)}"
                statuses[(await there.answer(ATTACKER, path))[0]] += 1

        await asyncio.gather(*(send() for _ in range(20)))
        # The refusals of the first second are sent at once.
        paced = statuses[429] - REFUSALS_PER_S
        assert paced / (time.monotonic() - began_s) <= REFUSALS_PER_S
        status, _ = await there.answer(OWNER, "/v1/quota?namespace=team-a")
        assert status == 200
