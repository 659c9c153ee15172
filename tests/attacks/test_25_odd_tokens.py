"""Attacker: T0, anyone who can reach the port, without a token or with another one.

Action: asks every path with no token, a wrong one, a worker's, or one in another place or form.
Must not happen: any path but those of health and of the API's description is answered, or an answer
tells how near a token is.
"""

from pathlib import Path

import pytest
from aiohttp import encode_basic_auth
from tests.attacks.tenants import OWNER, tenants
from tests.flowmesh_control.fabric import WORKER_TOKEN

TOKEN = f"{OWNER}-token"
HEADERS: dict[str, dict[str, str]] = {
    "none": {},
    "empty": {"Authorization": ""},
    "only the scheme": {"Authorization": "Bearer"},
    "only the scheme and a space": {"Authorization": "Bearer "},
    "wrong": {"Authorization": "Bearer nobody-token"},
    "cut": {"Authorization": f"Bearer {TOKEN[:-1]}"},
    "longer": {"Authorization": f"Bearer {TOKEN}x"},
    "upper case": {"Authorization": f"Bearer {TOKEN.upper()}"},
    "no scheme": {"Authorization": TOKEN},
    "another scheme": {"Authorization": f"Token {TOKEN}"},
    "lower scheme": {"Authorization": f"bearer {TOKEN}"},
    "basic": {"Authorization": encode_basic_auth(OWNER, TOKEN)},
    "twice": {"Authorization": f"Bearer {TOKEN}, Bearer {TOKEN}"},
    "a NUL escaped": {"Authorization": f"Bearer {TOKEN}%00"},
    "of a worker": {"Authorization": f"Bearer {WORKER_TOKEN}"},
    "very long": {"Authorization": f"Bearer {'x' * 7_000}"},
    "no ASCII": {"Authorization": "Bearer \u00e9\u4e16"},
    "a cookie": {"Cookie": f"token={TOKEN}; Authorization=Bearer {TOKEN}"},
    "another header": {"X-Authorization": f"Bearer {TOKEN}", "Token": TOKEN},
    "the user's name": {"X-Remote-User": OWNER, "Impersonate-User": OWNER},
    "a proxy's": {"Proxy-Authorization": f"Bearer {TOKEN}", "X-Forwarded-User": OWNER},
}


async def test_every_path_but_those_of_health_and_description_asks_for_a_token(
    tmp_path: Path,
) -> None:
    async with tenants(tmp_path) as fabric:
        assert fabric.control._runner is not None
        routes = fabric.control._runner.app.router.routes()
        paths = {(r.method, r.resource.canonical) for r in routes if r.resource}
        assert len(paths) > 35
        for method, path in sorted(paths):
            address = fabric.control.url + path.replace("{", "").replace("}", "")
            async with fabric.http.request(method, address) as found:
                is_open = path in ("/healthz", "/openapi.json")
                assert (found.status == 401) is not is_open, (method, path, found.status)
                if found.status == 401:
                    assert found.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs/x/watch", "/v1/nothing?token=" + TOKEN])
async def test_only_the_token_itself_in_its_header_counts(tmp_path: Path, path: str) -> None:
    async with tenants(tmp_path) as fabric:
        url = fabric.control.url + path
        answers = set()
        for name, headers in HEADERS.items():
            async with fabric.http.get(url, headers=headers) as found:
                answers.add((found.status, await found.read()))
                assert found.status in (401, 404), name
                assert found.status == 401 or "nothing" in path
        assert len(answers) == 1, answers
        for query in (
            f"?token={TOKEN}",
            f"?access_token={TOKEN}",
            f"?authorization=Bearer {TOKEN}",
        ):
            async with fabric.http.get(f"{fabric.control.url}/v1/runs{query}") as found:
                assert found.status == 401
        assert (await fabric.answer(OWNER, "/v1/runs"))[0] == 200
