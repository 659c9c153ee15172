"""Attacker: T2, a tenant that may create services.
Action: applies ever other services, each of which begins a run that imports its model.
Must not happen: more are accepted in a minute than the submissions of its quota.
"""

from collections import Counter
from pathlib import Path

from tests.attacks.stored_services import service
from tests.attacks.tenants import ATTACKER, OWNER, tenants
from tests.flowmesh_control.rights import EDIT

from flowmesh_api.v1.quotas import Quota

MODEL = "smollm2-135m-instruct"
MOST = 3
QUOTA = Quota(name="every", namespaces=("*",), submissions_per_minute=MOST)
RIGHTS = {
    OWNER: {"team-a": EDIT, "team-a/flowmeshservices": EDIT},
    ATTACKER: {"team-b": EDIT, "team-b/flowmeshservices": EDIT},
}


async def test_services_count_as_submissions(tmp_path: Path) -> None:
    async with tenants(tmp_path, RIGHTS) as there:
        await there.control.services.quotas.replace_all([QUOTA], {"team-a": {}, "team-b": {}})
        headers = {"Authorization": f"Bearer {ATTACKER}-token"}
        statuses = Counter[int]()
        for number in range(MOST + 2):
            body = {"document": service("team-b", MODEL, f"s{number}")}
            url = f"{there.control.url}/v1/services"
            async with there.http.post(url, json=body, headers=headers) as response:
                statuses[response.status] += 1
        assert statuses == {200: MOST, 429: 2}
        mine = {"document": service("team-a", MODEL)}
        assert (await there.ask(OWNER, "POST", "/v1/services", body=mine))["phase"] == "Pending"
