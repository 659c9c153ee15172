"""Attacker: T6, a page in the browser of a user of this machine (CSRF, DNS rebinding).

Action: sends forms, simple requests, preflights and WebSockets to the port, also as its own host.
Must not happen: a request without the token is carried out, or the page may read any answer.
"""

from pathlib import Path

import pytest
from aiohttp import WSServerHandshakeError
from tests.attacks.tenants import OWNER, SPEC, tenants
from tests.flowmesh_control.fabric import workflow

PAGE = "https://evil.example.com"
HOSTS = ("evil.example.com", "evil.example.com:8470", "localhost", "127.0.0.1.nip.io", "[::1]", "a")
ORIGINS = (PAGE, "null", "http://127.0.0.1:8470", "http://localhost", "file://")
# What a page may send without a preflight: these types, and no header of its own.
SIMPLE_TYPES = (
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
)
ACTS = (
    ("POST", "/v1/runs"),
    ("POST", "/v1/plan"),
    ("POST", "/v1/datasets?namespace=team-a"),
    ("POST", "/v1/trees?namespace=team-a"),
    ("POST", "/v1/runs/flow/cancel"),
    ("POST", "/v1/cache/purge"),
    ("POST", "/v1/cache/gc"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/engines"),
    ("GET", "/metrics"),
)


def allowing(headers: object) -> list[str]:
    """Headers of an answer by which a browser would show it to a page."""
    return [name for name in headers if str(name).lower().startswith("access-control-")]  # type: ignore[attr-defined]


@pytest.mark.parametrize("host", HOSTS)
async def test_a_page_without_the_token_does_nothing(tmp_path: Path, host: str) -> None:
    async with tenants(tmp_path) as fabric:
        await fabric.run(OWNER)
        for method, path in ACTS:
            for origin, kind in zip(ORIGINS, (*SIMPLE_TYPES, *SIMPLE_TYPES), strict=False):
                headers = {"Host": host, "Origin": origin, "Content-Type": kind,
                           "Cookie": f"token={OWNER}-token"}  # fmt: skip
                url = fabric.control.url + path
                async with fabric.http.request(method, url, headers=headers, data=b"{}") as found:
                    assert found.status == 401, (method, path)
                    assert not allowing(found.headers)
        runs = await fabric.ask(OWNER, "GET", "/v1/runs")
        assert [run["phase"] for run in runs] == ["Running"]


async def test_no_preflight_is_granted(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        for method, path in ACTS:
            headers = {
                "Origin": PAGE,
                "Access-Control-Request-Method": method,
                "Access-Control-Request-Headers": "authorization, content-type",
                "Access-Control-Request-Private-Network": "true",
            }
            async with fabric.http.options(fabric.control.url + path, headers=headers) as found:
                assert found.status in (401, 404, 405)
                assert not allowing(found.headers)


async def test_a_page_opens_no_websocket(tmp_path: Path) -> None:
    """A browser sends cookies and an origin with it, and no header that the page chooses."""
    async with tenants(tmp_path) as fabric:
        url = fabric.control.url.replace("http", "ws", 1) + "/worker?token=worker-token"
        for protocols in ((), ("worker-token",), ("bearer", "worker-token")):
            with pytest.raises(WSServerHandshakeError) as refused:
                await fabric.http.ws_connect(url, origin=PAGE, protocols=protocols)
            assert refused.value.status == 401


async def test_a_program_with_the_token_is_served_under_any_host(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        headers = {"Authorization": f"Bearer {OWNER}-token", "Host": HOSTS[0], "Origin": PAGE}
        body = {"document": workflow("w", SPEC)}
        url = f"{fabric.control.url}/v1/runs"
        async with fabric.http.post(url, headers=headers, json=body) as found:
            assert found.status == 201
            assert not allowing(found.headers)  # nor may a page read what a program may
