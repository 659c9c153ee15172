"""Attacker: T2, a tenant with a token of the API.

Action: names another tenant's namespace in the query of every request that has one.
Must not happen: anything is read from, stored in or counted in that namespace.
"""

from pathlib import Path

from tests.attacks.tenants import ADMIN, ATTACKER, OWNER, tenants

ROWS = b'{"secret":"of team-a"}\n'
REQUESTS = (
    ("GET", "/v1/content?reference={reference}&namespace={namespace}"),
    ("POST", "/v1/datasets?namespace={namespace}"),
    ("POST", "/v1/datasets?namespace={namespace}&name=x.csv"),
    ("POST", "/v1/trees?namespace={namespace}"),
    ("POST", "/v1/trees?namespace={namespace}&kind=adapter"),
    ("POST", "/v1/revoke?namespace={namespace}"),
    ("GET", "/v1/quota?namespace={namespace}"),
    ("GET", "/v1/lineage/{reference}?namespace={namespace}"),
    ("GET", "/v1/lineage/{reference}?namespace={namespace}&direction=down"),
    ("GET", "/v1/lineage/{reference}/rows?namespace={namespace}"),
    # Of two, the first counts; its own namespace does not stand for the other.
    ("GET", "/v1/content?reference={reference}&namespace={namespace}&namespace=team-b"),
    ("POST", "/v1/datasets?namespace={namespace}&namespace=team-b"),
)
LISTS = ("/v1/runs?namespace={namespace}", "/v1/receipts?namespace={namespace}")
ODD = ("team-a%00", "team-a%2f", "../team-a", "TEAM-A", "team-a%20", "*", "team-a,team-b")


async def test_the_query_opens_no_namespace(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        stored = await fabric.ask(
            OWNER, "POST", "/v1/datasets?namespace=team-a", data=ROWS, status=201
        )
        uid = await fabric.run(OWNER)
        paths = {"reference": stored["reference"], "namespace": "team-a"}
        for method, path in REQUESTS:
            url = fabric.control.url + path.format(**paths)
            headers = {"Authorization": f"Bearer {ATTACKER}-token"}
            async with fabric.http.request(method, url, headers=headers, data=ROWS) as response:
                answer = await response.read()
                assert response.status in (403, 404), (path, response.status, answer)
                assert b"of team-a" not in answer, path
        for path in LISTS:
            status, answer = await fabric.answer(ATTACKER, path.format(**paths))
            assert uid.encode() not in answer, path
            assert status in (200, 403), answer
        for namespace in ODD:
            view = f"/v1/content?reference={stored['reference']}&namespace={namespace}"
            assert (await fabric.answer(ATTACKER, view))[0] in (400, 403), namespace
        # Its owner reads and lists; an administrator sees that nothing was stored beside.
        view = REQUESTS[0][1].format(**paths)
        assert await fabric.answer(OWNER, view) == (200, ROWS)
        for who in (OWNER, ADMIN):
            assert uid.encode() in (await fabric.answer(who, LISTS[0].format(**paths)))[1]
