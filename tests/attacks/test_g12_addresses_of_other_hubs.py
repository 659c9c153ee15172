"""Attacker: W, a worker that has a replica in the routes of a service.
Action: gives routers the address of another machine, or answers at another worker's address.
Must not happen: a value goes there; it goes by the router, and to the rightful worker's port.
"""

import asyncio
from pathlib import Path

import pytest
from tests.attacks.test_s10_hubs_without_a_certificate import LOAD, connected, received, send
from tests.flowmesh_serving.machines import hub_with_port, peer_value
from tests.flowmesh_serving.stack import SERVICE, until
from tests.flowmesh_serving.tls_stack import WORKER, certificate, tls_router

from flowmesh_core.protocol.serving import (
    SERVING_VERSION,
    HubHello,
    PeerAddress,
    RouterWelcome,
)
from flowmesh_worker.serving.peer_link import Delivery


@pytest.mark.parametrize(
    ("shown", "used"),
    [
        ("tls:8483", "tls:127.0.0.1:8483"),
        ("tls:10.0.0.9:8483", ""),
        ("tls:22", ""),
        ("tls:84830", ""),
        ("tls:08483", ""),
        ("0123456789abcdef", ""),
    ],
)
async def test_a_hub_is_where_it_connects_from(tmp_path: Path, shown: str, used: str) -> None:
    async with (
        tls_router(tmp_path) as router,
        connected(router, certificate()) as (reader, writer),
    ):
        send(writer, HubHello(SERVING_VERSION, WORKER, "h1", (LOAD,), shown))
        assert await received(reader) == [RouterWelcome(SERVING_VERSION)]
        (replica,) = router.router._calls.replicas._by_service[SERVICE].values()
        assert replica.link.peer == used


async def test_a_value_goes_to_the_worker_that_the_route_names(tmp_path: Path) -> None:
    async with (
        hub_with_port(tmp_path, "w-1") as (sender, _),
        hub_with_port(tmp_path, "w-2") as (other, port),
    ):
        address = PeerAddress(f"tls:127.0.0.1:{port}", "key")
        relayed, sent = asyncio.Event(), asyncio.Event()

        def deliver(worker: str) -> None:
            one = Delivery(peer_value(), b'"x"' * 4_000_000, relayed.set, sent.set)
            sender._stages.peers.send(worker, address, one)

        deliver("w-3")
        async with asyncio.timeout(10):
            await relayed.wait()
        assert (other._stages._early.size, sent.is_set()) == (0, False)
        sender._stages.peers._links.clear()  # as if the time until the next attempt were over
        deliver("w-2")
        await until(lambda: other._stages._early.size > 0)
        assert sent.is_set()
