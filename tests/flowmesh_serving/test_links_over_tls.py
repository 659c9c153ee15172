"""Calls between a router and a hub of another machine: TLS and link certificates."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from httpx import AsyncClient
from tests.flowmesh_serving.stack import SERVICE, TOKEN, ask, replica_of, start_host, until
from tests.flowmesh_serving.tls_stack import TlsRouter, certificate, signer, tls_router

from flowmesh_core.protocol.link_certificates import VALID_S
from flowmesh_serving.links import hub_link
from flowmesh_worker.serving import router_group

pytestmark = pytest.mark.slow


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[TlsRouter]:
    """A router, and a hub with a replica that is not connected yet."""
    async with tls_router(tmp_path, probe_port=0) as made:
        host = await start_host(tmp_path / "host")
        await made.hub.admit(replica_of(host))
        yield made
        await host.close()


@contextlib.asynccontextmanager
async def client_of(found: TlsRouter) -> AsyncIterator[openai.AsyncOpenAI]:
    trust = ssl.create_default_context(cadata=found.ca)
    async with openai.AsyncOpenAI(
        base_url=f"{found.router.url}/v1", api_key=TOKEN, max_retries=0,
        http_client=AsyncClient(verify=trust),
    ) as client:  # fmt: skip
        yield client


def ready(found: TlsRouter) -> int:
    return found.router._calls.replicas.count(SERVICE)


async def test_a_client_is_answered_over_tls_by_a_hub_with_a_certificate(found: TlsRouter) -> None:
    found.connect()
    await until(lambda: ready(found) == 1)
    assert found.router.url.startswith("https://")
    async with client_of(found) as client:
        answer = await ask(client, "one two")
        assert answer.choices[0].message.content == "one two"
        stream = await ask(client, "three four", stream=True)
        words = [c.choices[0].delta.content async for c in stream if c.choices[0].delta.content]
        assert words == ["three", "four"]


async def test_probes_and_metrics_are_on_a_port_of_their_own(found: TlsRouter) -> None:
    async with AsyncClient(verify=ssl.create_default_context(cadata=found.ca)) as http:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await http.get(found.router.probe_url + path)).status_code == 200
            assert (await http.get(found.router.url + path)).status_code == 404


async def test_a_renewed_certificate_keeps_the_connection_and_its_calls(
    found: TlsRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    almost = signer(now=lambda: time.time() - VALID_S + 3.0)
    found.connect(almost.issue("worker-1", "i1", "thin", "", ["team-a"]))
    await until(lambda: ready(found) == 1)
    (group,) = found.hub._routers.values()
    (link,) = group.links
    channel = link._channel
    async with client_of(found) as client:
        waiting = asyncio.ensure_future(ask(client, "wait"))
        await found.until_load(running=1)
        found.connect(certificate())
        refusals: list[str] = []
        monkeypatch.setattr(hub_link.HubLink, "_refuse", lambda _, reason: refusals.append(reason))
        async with asyncio.timeout(3.5):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waiting), 3.2)  # the first one's time is over
        assert link._channel is channel
        assert refusals == []
        waiting.cancel()


async def test_a_link_ends_with_its_certificate(found: TlsRouter) -> None:
    almost = signer(now=lambda: time.time() - VALID_S + 2.0)
    found.connect(almost.issue("worker-1", "i1", "thin", "", ["team-a"]))
    await until(lambda: ready(found) == 1)
    await until(lambda: ready(found) == 0)
    found.connect()
    await until(lambda: ready(found) == 1)


async def test_a_hub_connects_to_each_router_behind_a_name(
    found: TlsRouter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses, resolved_again = ["127.0.0.1"], asyncio.Event()

    async def resolved(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        assert host == "localhost"
        if len(addresses) == 1 and len(found.hub._routers[found.address].links) > 1:
            resolved_again.set()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
    monkeypatch.setattr(router_group, "_RESOLVE_EVERY_S", 0.02)
    found.connect()
    await until(lambda: ready(found) == 1)
    (group,) = found.hub._routers.values()
    async with tls_router(tmp_path, "127.0.0.2", found.router.hubs_port) as second:
        addresses.append("127.0.0.2")
        await until(lambda: ready(second) == 1)
        addresses.remove("127.0.0.2")  # it is about to stop, and may have calls
        await resolved_again.wait()
        assert len(group.links) == 2
        (replica,) = second.router._calls.replicas._by_service[SERVICE].values()
        replica.link.close()
    await until(lambda: len(group.links) == 1)
    assert ready(found) == 1


async def test_a_hub_tries_again_where_a_connection_is_not_made_in_time(
    found: TlsRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would wait up to a minute for a link that is back."""
    monkeypatch.setattr(router_group, "_CONNECT_WITHIN_S", 0.05)
    silent: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, w: silent.append(w), "127.0.0.1", 0)
    address = f"tls:127.0.0.1:{server.sockets[0].getsockname()[1]}"
    found.hub.use_routers((address,), {address: found.tls(certificate())})
    await until(lambda: len(silent) == 3)
    found.hub.use_routers(())
    for writer in silent:
        writer.close()
    server.close()


async def test_a_hub_whose_certificate_a_router_does_not_know_says_so(
    found: TlsRouter, caplog: pytest.LogCaptureFixture
) -> None:
    found.connect(signer(b"x" * 32).issue("worker-1", "i1", "thin", "", ["team-a"]))
    await until(lambda: "does not know the authority" in caplog.text)
    assert ready(found) == 0
    found.connect()
    await until(lambda: ready(found) == 1)


async def test_a_hub_does_not_talk_to_a_router_of_another_authority(
    found: TlsRouter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other").mkdir()
    async with tls_router(tmp_path / "other") as other:
        found.folder = other.folder  # its authority
        found.connect()
        await until(lambda: "is not to be trusted" in caplog.text)
        assert ready(found) == 0
    found.folder = tmp_path
    found.connect()
    await until(lambda: ready(found) == 1)
