"""Workers whose hubs reach router and each other by TLS alone, as on several machines."""

import contextlib
import datetime
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from tests.flowmesh_serving.stack import Stack, replica_of, start_host
from tests.flowmesh_serving.tls_stack import HOST, TlsRouter, certificate, tls_router

from flowmesh_core.protocol.link_certificates import LinkCertificate
from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_core.protocol.serving import PassedValue, PeerValue
from flowmesh_operator.access.gateway_certificate import gateway_certificate
from flowmesh_worker.ipc.hub_frames import RouterTls
from flowmesh_worker.serving.service_hub import ServiceHub


class SeveralMachines:
    """Hubs that listen on ports of 127.0.0.1.

    Attributes:
        trust: verifies the router.
    """

    def __init__(
        self,
        folder: Path,
        without_port: Iterable[str] = (),
    ) -> None:
        """Makes the router's certificate.

        Args:
            folder: of the stack.
            without_port: workers of pools that have no peers.
        """
        now = datetime.datetime.now(datetime.UTC)
        for name, content in gateway_certificate([HOST], 1, now).items():
            (folder / name).write_bytes(content)
        self.trust: ssl.SSLContext | bool = ssl.create_default_context(cafile=folder / "ca.crt")
        self._without_port = set(without_port)

    def router(
        self, folder: Path, listed: tuple[ServiceEntry, ...]
    ) -> contextlib.AbstractAsyncContextManager[Stack]:
        """See ``Machines.router``."""
        return tls_router(folder, listed=listed)

    async def hub(self, stack: Stack, worker: str) -> ServiceHub:
        """See ``Machines.hub``."""
        assert isinstance(stack, TlsRouter)
        hub = ServiceHub(worker, stack.usage.append)
        port = 0 if worker in self._without_port else free_port()
        tls = {stack.address: stack.tls(certificate(worker=worker))}
        hub.use_routers((stack.address,), tls, port)
        return hub


def free_port() -> int:
    """Returns a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def tls_of(shown: LinkCertificate) -> RouterTls:
    """Returns what a hub with this certificate has."""
    return RouterTls("", shown.certificate, shown.key, shown.authorities)


@contextlib.asynccontextmanager
async def hub_with_port(folder: Path, worker: str) -> AsyncIterator[tuple[ServiceHub, int]]:
    """Yields a hub that has a replica of ``team-a``, and its port for values of other hubs."""
    host, hub, port = await start_host(folder / worker), ServiceHub(worker, print), free_port()
    try:
        await hub.admit(replica_of(host))
        hub._stages.peers.use_port(port, tls_of(certificate(worker=worker)))
        yield hub, port
    finally:
        hub.close()
        await host.close()


def peer_value(request_id: str = "q1") -> PeerValue:
    """Returns a value for a request that the router has not sent yet."""
    return PeerValue(request_id, 1, "used", "made", PassedValue(b'"forged"'))
