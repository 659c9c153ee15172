"""A router that reads its services from a real control plane, also while that is away."""

import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import API_TOKEN, Fabric, control_plane

from flowmesh_control.auth.tls_certificate import TlsCertificate
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.router_services import RouterServices
from flowmesh_operator.access.gateway_certificate import gateway_certificate
from flowmesh_serving.control_client import ControlClient
from flowmesh_serving.router.server import RouterServer
from flowmesh_serving.router.settings import RouterSettings

DOCUMENT = {
    "apiVersion": "flowmesh.dev/v1alpha1",
    "kind": "FlowMeshService",
    "metadata": {"name": "ask", "namespace": "team-a"},
    "spec": {"inputs": {}, "components": {"echo": {"uses": "test.echo", "inputs": {}}}},
}


@pytest.fixture
async def fabric(tmp_path: Path) -> AsyncIterator[Fabric]:
    """A control plane with TLS."""
    now = datetime.datetime.now(datetime.UTC)
    for name, content in gateway_certificate(["localhost"], 1, now).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "token").write_text(f"{API_TOKEN}\n")
    certificate = TlsCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    control = control_plane(tmp_path, certificate=certificate)
    await control.start()
    async with ClientSession() as http:
        yield Fabric(tmp_path, control, http, authority=tmp_path / "ca.crt")
    await control.stop()


async def test_changed_services_are_read_and_unchanged_ones_are_not(fabric: Fabric) -> None:
    root = fabric.root
    client = ControlClient(fabric.control.url, root / "token", root / "ca.crt")
    first = await client.read()
    assert isinstance(first, RouterServices)
    assert first.services == ()
    assert set(first.link_authorities) == {"00"}
    assert await client.read() is None
    await fabric.call("POST", "/v1/services", body={"document": DOCUMENT})
    second = await client.read()
    assert second is not None
    assert [s.service for s in second.services] == ["team-a/ask"]
    assert second.link_authorities == first.link_authorities


async def test_a_list_has_its_leaders_epoch_and_a_version_that_rises_with_each_change(
    fabric: Fabric,
) -> None:
    client = ControlClient(fabric.control.url, fabric.root / "token", fabric.root / "ca.crt")
    first = await client.read()
    assert first is not None
    assert (first.epoch, first.version) == (1, 1)
    await fabric.call("POST", "/v1/services", body={"document": DOCUMENT})
    second = await client.read()
    assert second is not None
    assert (second.epoch, second.version) == (1, 2)


async def test_the_list_of_a_deposed_leader_does_not_replace_that_of_the_next(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text(API_TOKEN)
    older, newer = control_plane(tmp_path), control_plane(tmp_path)
    await older.start()
    await newer.start()
    router = RouterServer(
        RouterSettings(
            "127.0.0.1", 0, tmp_path / "hubs", control=newer.url, token=tmp_path / "token"
        )
    )
    async with ClientSession() as http:
        await Fabric(tmp_path, newer, http).call(
            "POST", "/v1/services", body={"document": DOCUMENT}
        )
    for url in (older.url, newer.url, older.url):
        listed = await ControlClient(url, tmp_path / "token", None).read()
        assert listed is not None
        router._use(listed)
    assert set(router._services.names) == {"team-a/ask"}
    await older.stop()
    await newer.stop()


async def test_what_cannot_be_read_names_the_place_and_what_holds(fabric: Fabric) -> None:
    root, url = fabric.root, fabric.control.url
    (root / "wrong").write_text("another-token")
    gone = url.rpartition(":")[0] + ":1"
    for client, text in (
        (ControlClient(url, root / "wrong", root / "ca.crt"), "status 401"),
        (ControlClient(url, root / "token", None), "certificate verify failed"),
        (ControlClient(url, root / "none", root / "ca.crt"), "No such file"),
        (ControlClient(gone, root / "token", root / "ca.crt"), "Cannot connect"),
    ):
        with pytest.raises(FlowMeshError, match=text) as failed:
            await client.read()
        assert failed.value.where.endswith("/v1/router")
        assert "what it read last holds" in failed.value.remedy


def test_the_list_of_a_newer_control_plane_can_be_read() -> None:
    newer = {"services": [{"service": "a/b", "model": "m", "color": "red"}], "more": 1}
    found = msgspec.json.decode(msgspec.json.encode(newer), type=RouterServices)
    assert found.services[0].model == "m"
