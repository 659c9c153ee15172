"""A router that hubs reach with TLS and link certificates, as on a cluster."""

import contextlib
import datetime
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from tests.flowmesh_serving.stack import Stack, services

from flowmesh_control.auth.link_signer import LinkSigner
from flowmesh_core.protocol.link_certificates import LINK_KEYS, LinkCertificate
from flowmesh_core.protocol.router_services import RouterServices, ServiceEntry
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_operator.access.gateway_certificate import gateway_certificate
from flowmesh_serving.router.server import RouterServer
from flowmesh_serving.router.settings import RouterSettings
from flowmesh_worker.ipc.hub_frames import ReplicaUsage, RouterTls
from flowmesh_worker.serving.service_hub import ServiceHub

HOST, WORKER = "localhost", "worker-1"


def signer(secret: bytes = b"k" * 32, now: Callable[[], float] = time.time) -> LinkSigner:
    """Returns what signs certificates with the key of a control plane."""
    return LinkSigner(KeyRing.of(secret).derive(LINK_KEYS), now)


def certificate(namespaces: Iterable[str] = ("team-a",), worker: str = WORKER) -> LinkCertificate:
    """Returns a valid certificate."""
    return signer().issue(worker, "i1", "thin", "", namespaces)


class TlsRouter(Stack):
    """A router with a port for hubs, and a hub that is not connected to it."""

    @property
    def address(self) -> str:
        return f"tls:{HOST}:{self.router.hubs_port}"

    @property
    def ca(self) -> str:
        return (self.folder / "ca.crt").read_text()

    def tls(self, shown: LinkCertificate) -> RouterTls:
        """Returns what a hub with this certificate has."""
        return RouterTls(self.ca, shown.certificate, shown.key, shown.authorities)

    def connect(self, shown: LinkCertificate | None = None) -> None:
        """Connects the hub, with a valid certificate or another one."""
        tls = self.tls(certificate() if shown is None else shown)
        self.hub.use_routers((self.address,), {self.address: tls})


@contextlib.asynccontextmanager
async def tls_router(
    folder: Path,
    host: str = "127.0.0.1",
    hubs_port: int = 0,
    listed: tuple[ServiceEntry, ...] | None = None,
    **settings: Any,
) -> AsyncIterator[TlsRouter]:
    """Yields a router that listens for hubs with TLS."""
    now = datetime.datetime.now(datetime.UTC)
    if not (folder / "ca.crt").exists():
        for name, content in gateway_certificate([HOST], 1, now).items():
            (folder / name).write_bytes(content)
    found = RouterServices(services() if listed is None else listed, signer().authorities)
    (folder / "services.json").write_bytes(msgspec.json.encode(found))
    router = RouterServer(
        RouterSettings(
            host, 0, services=folder / "services.json", hubs_port=hubs_port,
            tls_cert=folder / "tls.crt", tls_key=folder / "tls.key", **settings,
        )
    )  # fmt: skip
    await router.start()
    usage: list[ReplicaUsage] = []
    hub = ServiceHub(WORKER, usage.append)
    try:
        yield TlsRouter(folder, router, hub, usage)
    finally:
        hub.close()
        await router.stop()
