"""TLS: real connections to a real control plane, and files that are renewed under it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from aiohttp import ClientConnectorCertificateError, ClientSession
from tests.flowmesh_control.fabric import API_TOKEN, Fabric, control_plane, workflow
from tests.flowmesh_control.waiting import until

from flowmesh_control.auth.tls_certificate import TlsCertificate
from flowmesh_core.errors import FlowMeshError

LOOK_EVERY_S = 0.05


class Issued:
    """Files as a Secret mounts them, and the authority that they come from."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca = folder / "ca.crt"
        self.chain = folder / "tls.crt"
        self.key = folder / "tls.key"
        self.authority.cert_pem.write_to_path(self.ca)
        self.renew()

    def renew(self) -> None:
        leaf = self.authority.issue_cert("127.0.0.1")
        leaf.private_key_pem.write_to_path(self.key)
        leaf.cert_chain_pems[0].write_to_path(self.chain)

    def certificate(self) -> TlsCertificate:
        return TlsCertificate(self.chain, self.key, look_every_s=LOOK_EVERY_S)


@pytest.fixture
def issued(tmp_path: Path) -> Issued:
    return Issued(tmp_path)


@pytest.fixture
async def fabric(issued: Issued, tmp_path: Path) -> AsyncIterator[Fabric]:
    control = control_plane(tmp_path, certificate=issued.certificate())
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)
        yield fabric
        await asyncio.to_thread(fabric.close)
    await control.stop()


async def serial(url: str, ca: Path) -> str:
    """The serial number of the certificate that a new connection is shown."""
    host, port = url.removeprefix("https://").split(":")
    trusted = ssl.create_default_context(cafile=ca)
    _, writer = await asyncio.open_connection(host, int(port), ssl=trusted)
    shown = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    await writer.wait_closed()
    return str(shown)


async def becomes(url: str, ca: Path, before: str) -> str:
    async with asyncio.timeout(180):
        while (now := await serial(url, ca)) == before:  # noqa: ASYNC110 - told by no event
            await asyncio.sleep(LOOK_EVERY_S)
    return now


async def test_a_renewed_certificate_is_shown_to_new_connections(
    fabric: Fabric, issued: Issued
) -> None:
    url = fabric.control.url
    first = await serial(url, issued.ca)
    issued.renew()
    assert await becomes(url, issued.ca, first) != first


async def test_the_old_certificate_is_served_while_a_pair_is_only_half_replaced(
    fabric: Fabric, issued: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    url = fabric.control.url
    first = await serial(url, issued.ca)
    another = issued.authority.issue_cert("127.0.0.1")
    another.cert_chain_pems[0].write_to_path(issued.chain)  # its key is not there yet
    await until(lambda: "the old certificate stays" in caplog.text)
    assert await serial(url, issued.ca) == first
    issued.renew()
    assert await becomes(url, issued.ca, first) != first


async def test_a_client_that_does_not_trust_the_authority_cannot_connect(fabric: Fabric) -> None:
    with pytest.raises(ClientConnectorCertificateError):
        await fabric.http.get(
            f"{fabric.control.url}/v1/runs", headers={"Authorization": f"Bearer {API_TOKEN}"}
        )


@pytest.mark.slow
async def test_a_worker_joins_over_tls_with_the_authoritys_certificate(
    fabric: Fabric, issued: Issued
) -> None:
    fabric.authority = issued.ca
    fabric.worker("local-w1", "--gateway-ca", str(issued.ca))
    spec = {"steps": [{"name": "one", "uses": "test.noop"}]}
    status = await fabric.ended(await fabric.submit(workflow("over-tls", spec)))
    assert status.phase == "Succeeded"


def test_a_certificate_without_its_key_is_refused(issued: Issued, tmp_path: Path) -> None:
    with pytest.raises(FlowMeshError, match="the key is missing"):
        TlsCertificate.of(str(issued.chain), "")
    assert TlsCertificate.of("", "") is None
    (tmp_path / "other").mkdir()
    other = Issued(tmp_path / "other")
    with pytest.raises(FlowMeshError, match="cannot be used") as wrong:
        TlsCertificate(issued.chain, other.chain)
    assert str(issued.chain) in wrong.value.where
