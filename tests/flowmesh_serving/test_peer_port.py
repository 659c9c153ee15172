"""Links between hubs of several machines, and values that go by relay where there is none."""

import time
from pathlib import Path

import pytest
from cryptography import x509
from tests.flowmesh_serving.machines import free_port, hub_with_port, peer_value, tls_of
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.tls_stack import certificate, signer

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.link_certificates import (
    VALID_S,
    LinkClaims,
    claims_uri,
    read_claims,
    shown_claims,
)
from flowmesh_core.protocol.serving import PeerAddress
from flowmesh_serving.links.link_verifier import LinkVerifier, read_pem
from flowmesh_worker.serving import peer_link, peer_links
from flowmesh_worker.serving.peer_link import Delivery
from flowmesh_worker.serving.service_hub import ServiceHub

SMALL, LARGE = b'"x"', b'"' + b"x" * (9 << 20) + b'"'


def deliver(hub: ServiceHub, port: int, data: bytes, request_id: str = "q1") -> list[str]:
    """Sends a value to the worker ``w-2``; returns a list that gets how it went."""
    ways: list[str] = []
    one = Delivery(
        peer_value(request_id), data, lambda: ways.append("relay"), lambda: ways.append("peer")
    )
    hub._stages.peers.send("w-2", PeerAddress(f"tls:127.0.0.1:{port}", "key"), one)
    return ways


async def test_what_the_router_takes_does_not_wait_for_a_link(tmp_path: Path) -> None:
    async with hub_with_port(tmp_path, "w-1") as (hub, _), hub_with_port(tmp_path, "w-2") as other:
        second, port = other
        assert deliver(hub, port, SMALL) == ["relay"]
        large = deliver(hub, port, LARGE)
        assert large == []
        await until(lambda: large == ["peer"])
        assert deliver(hub, port, SMALL) == ["peer"]
        await until(lambda: second._stages._early.size > len(LARGE))
        assert len(hub._stages.peers._links) == 1


async def test_a_machine_that_cannot_be_reached_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_link, "RETRY_S", 0.2)
    async with hub_with_port(tmp_path, "w-1") as (hub, _):
        port = free_port()
        large = deliver(hub, port, LARGE)
        await until(lambda: large == ["relay"])
        assert deliver(hub, port, LARGE) == ["relay"]
        await until(lambda: not hub._stages.peers._links)
        assert deliver(hub, port, SMALL) == ["relay"]
        assert len(hub._stages.peers._links) == 1


async def test_a_hub_without_a_port_has_everything_relayed(tmp_path: Path) -> None:
    hub = ServiceHub("w-1", print)
    async with hub_with_port(tmp_path, "w-2") as (_, port):
        assert deliver(hub, port, LARGE) == ["relay"]
    assert hub._stages.peers.name == ""


async def test_a_hub_that_has_closed_has_no_value_that_came_early(tmp_path: Path) -> None:
    async with hub_with_port(tmp_path, "w-1") as (hub, _), hub_with_port(tmp_path, "w-2") as other:
        second, port = other
        large = deliver(hub, port, LARGE)
        await until(lambda: large == ["peer"] and second._stages._early.size > 0)
    assert second._stages._early.size == 0


@pytest.mark.slow
async def test_a_link_ends_with_the_certificate_that_made_it(tmp_path: Path) -> None:
    async with hub_with_port(tmp_path, "w-1") as (hub, _), hub_with_port(tmp_path, "w-2") as other:
        almost = signer(now=lambda: time.time() - VALID_S + 2.0)
        hub._stages.peers.use_port(0, tls_of(almost.issue("w-1", "i1", "thin", "", ["team-a"])))
        large = deliver(hub, other[1], LARGE)
        await until(lambda: large == ["peer"])
        await until(lambda: not hub._stages.peers._links)
        hub._stages.peers.use_port(0, tls_of(certificate(worker="w-1")))
        renewed = deliver(hub, other[1], LARGE, "q2")
        await until(lambda: renewed == ["peer"])


async def test_a_link_is_made_again_long_before_its_certificate_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hub_with_port(tmp_path, "w-1") as (hub, _), hub_with_port(tmp_path, "w-2") as other:
        first = deliver(hub, other[1], LARGE)
        await until(lambda: first == ["peer"])
        (link,) = hub._stages.peers._links.values()
        monkeypatch.setattr(peer_links, "_USED_S", 0.0)
        again = deliver(hub, other[1], LARGE)
        await until(lambda: again == ["peer"])
        assert list(hub._stages.peers._links.values()) != [link]


def test_what_a_certificate_says_is_its_subjects_name() -> None:
    claims = LinkClaims("w/1 &é=", "i", "thin", "", ("team-a", "team-b"))
    assert read_claims(claims_uri(claims)) == claims
    assert shown_claims({"subjectAltName": (("URI", claims_uri(claims)),)}) == claims
    for other in ("spiffe://cluster/worker", "flowmesh://link?worker=w", ""):
        with pytest.raises(ProtocolError, match="not the name of a link certificate"):
            read_claims(other)
    for shown in (None, {}, {"subjectAltName": (("DNS", "w"),)}):
        with pytest.raises(ProtocolError, match="not a link certificate"):
            shown_claims(shown)


def test_a_router_refuses_certificates_of_an_authority_that_is_not_listed_any_more() -> None:
    verifier, shown = LinkVerifier(), read_pem(certificate().certificate)
    assert isinstance(shown, x509.Certificate)
    verifier.use(signer().authorities)
    claims, remaining_s = verifier.verify(shown)
    assert (claims.worker, VALID_S - 60 < remaining_s <= VALID_S) == ("worker-1", True)
    verifier.use(signer(b"n" * 32).authorities)
    with pytest.raises(ProtocolError, match="not of this installation"):
        verifier.verify(shown)
