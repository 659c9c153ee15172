"""Workers whose hubs reach router and each other by TLS alone, as on several machines."""

import contextlib
import datetime
import socket
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.flowmesh_serving.stack import Stack
from tests.flowmesh_serving.tls_stack import HOST, TlsRouter, certificate, tls_router

from flowmesh_core.protocol.link_certificates import LinkCertificate
from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_operator.access.gateway_certificate import gateway_certificate
from flowmesh_worker.serving.service_hub import ServiceHub


class SeveralMachines:
    """Hubs that listen on ports of 127.0.0.1.

    Attributes:
        trust: verifies the router.
        ports: of hubs, by worker.
    """

    def __init__(
        self,
        folder: Path,
        shown: Callable[[str], LinkCertificate] = lambda worker: certificate(worker=worker),
        without_port: Iterable[str] = (),
    ) -> None:
        """Makes the router's certificate.

        Args:
            folder: of the stack.
            shown: returns the certificate of a worker.
            without_port: workers of pools that have no peers.
        """
        now = datetime.datetime.now(datetime.UTC)
        for name, content in gateway_certificate([HOST], 1, now).items():
            (folder / name).write_bytes(content)
        self.trust: ssl.SSLContext | bool = ssl.create_default_context(cafile=folder / "ca.crt")
        self.ports: dict[str, int] = {}
        self._shown = shown
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
        self.ports[worker] = port
        tls = {stack.address: stack.tls(self._shown(worker))}
        hub.use_routers((stack.address,), tls, port)
        return hub


def free_port() -> int:
    """Returns a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
