"""Attacker: W, a worker that the control plane does not let join any more.
Action: keeps its connection to a router, renews and makes it again with its valid certificate.
Must not happen: it gets a call; another worker of the same namespace gets them.
"""

from pathlib import Path

import msgspec
from tests.attacks.test_s10_hubs_without_a_certificate import (
    LOAD,
    connected,
    hello,
    received,
    send,
)
from tests.flowmesh_serving.stack import SERVICE, services, until
from tests.flowmesh_serving.tls_stack import WORKER, certificate, signer, tls_router

from flowmesh_core.protocol.router_services import RouterServices
from flowmesh_core.protocol.serving import (
    SERVING_VERSION,
    HubHello,
    RouterRefused,
    RouterWelcome,
)


async def test_a_router_takes_nothing_from_a_worker_that_may_not_join(tmp_path: Path) -> None:
    async with tls_router(tmp_path) as router:
        table = router.router._calls.replicas
        async with connected(router, certificate()) as (reader, writer):
            send(writer, hello(LOAD))
            assert await received(reader) == [RouterWelcome(SERVING_VERSION)]
            assert table.count(SERVICE) == 1
            denied = RouterServices(services(), signer().authorities, (WORKER,))
            router.router._use(denied)
            await until(lambda: table.count(SERVICE) == 0)
            while not isinstance((frame := (await received(reader))[-1]), RouterRefused):
                pass
            assert "refuses its worker" in frame.reason
        async with connected(router, certificate()) as (reader, _):
            (frame,) = await received(reader)
            assert isinstance(frame, RouterRefused)
            assert "refuses the worker" in frame.reason
        async with connected(router, certificate(worker="w-2")) as (reader, writer):
            other = msgspec.structs.replace(LOAD, replica_id="r2")
            send(writer, HubHello(SERVING_VERSION, "w-2", "h2", (other,)))
            assert await received(reader) == [RouterWelcome(SERVING_VERSION)]
            assert table.count(SERVICE) == 1
