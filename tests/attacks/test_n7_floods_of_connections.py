"""Attacker: T0, anyone who can reach the port; no token is needed.
Action: opens connections and shows no valid token on them: half requests, and wrong tokens.
Must not happen: more than 64 of one peer stay, or a user whose token is known loses a connection.
"""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from tests.attacks.by_hand import until
from tests.attacks.one_fabric import fabric_at
from tests.flowmesh_control.fabric import API_TOKEN, Fabric

from flowmesh_control.auth.unverified_connections import (
    ConnectionLimit,
    UnverifiedConnections,
    peer_of,
)
from flowmesh_operator.leadership.liveness import alive_at

HALF = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
WRONG = b"GET /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def port_of(fabric: Fabric) -> int:
    return int(fabric.control.url.rpartition(":")[2])


async def opened(port: int, said: bytes) -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    return reader, writer


async def until_counted(count: int, unverified: UnverifiedConnections) -> None:
    await until(lambda: unverified.count == count)


async def test_the_65th_connection_of_a_peer_is_refused_and_a_known_user_goes_on(
    tmp_path: Path,
) -> None:
    async with fabric_at(tmp_path) as fabric:
        unverified = fabric.control.services.connections
        await fabric.call("GET", "/v1/runs")  # the owner's connection, which is kept
        await until_counted(0, unverified)
        port = port_of(fabric)
        flood = [await opened(port, HALF if n % 2 else WRONG) for n in range(64)]
        await until_counted(64, unverified)
        reader, writer = await opened(port, HALF)
        assert b" 503 " in await asyncio.wait_for(reader.readline(), 30)
        said = await asyncio.wait_for(reader.read(), 30)
        assert b"Retry-After: 1" in said
        assert b"raise gateway.connections.perPeer" in said
        writer.close()
        assert unverified.refused == {ConnectionLimit.PEER: 1}
        await fabric.call("GET", "/v1/runs")
        page = await metrics(fabric)
        assert 'flowmesh_connections_refused_total{limit="peer"} 1.0' in page
        assert "flowmesh_connections_unverified 64.0" in page
        for _, writer in flood:
            writer.close()
        await until_counted(0, unverified)
        reader, writer = await opened(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await asyncio.wait_for(reader.readline(), 30)
        writer.close()


async def metrics(fabric: Fabric) -> str:
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    async with fabric.http.get(f"{fabric.control.url}/metrics", headers=headers) as response:
        assert response.status == 200
        return await response.text()


async def test_connections_with_a_valid_token_do_not_count(tmp_path: Path) -> None:
    async with fabric_at(tmp_path) as fabric:
        headers = {"Authorization": f"Bearer {API_TOKEN}"}
        port = port_of(fabric)
        said = f"GET /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: {headers['Authorization']}\r\n"
        known = []
        for _ in range(70):
            reader, writer = await opened(port, f"{said}\r\n".encode())
            assert b" 200 " in await asyncio.wait_for(reader.readline(), 30)
            known.append(writer)
        unverified = fabric.control.services.connections
        assert (unverified.count, unverified.refused) == (0, {})
        for writer in known:
            writer.close()


async def test_the_liveness_server_has_the_same_limit(unused_tcp_port: int) -> None:
    async with alive_at(unused_tcp_port, "127.0.0.1"), aiohttp.ClientSession() as http:
        flood = [await opened(unused_tcp_port, HALF) for _ in range(64)]
        reader, writer = await opened(unused_tcp_port, HALF)
        assert b" 503 " in await asyncio.wait_for(reader.readline(), 30)
        for _, other in (*flood, (reader, writer)):
            other.close()
            await other.wait_closed()
        async with asyncio.timeout(30):
            while True:
                async with http.get(f"http://127.0.0.1:{unused_tcp_port}/healthz") as answer:
                    if answer.status == 200:
                        break


def test_all_peers_together_have_a_limit_too() -> None:
    unverified = UnverifiedConnections(2, 3)
    assert [unverified.add(p) for p in ("a", "a", "a", "b", "c")] == [
        None,
        None,
        ConnectionLimit.PEER,
        None,
        ConnectionLimit.TOTAL,
    ]
    unverified.remove("a")
    assert unverified.add("c") is None
    assert unverified.count == 3


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("192.0.2.1", 80), "192.0.2.1"),
        (("::ffff:192.0.2.1", 80, 0, 0), "192.0.2.1"),
        (("2001:db8:1:2:3:4:5:6", 80, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 80, 0, 2), "fe80::/64"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_peer_is_an_ipv4_address_or_an_ipv6_network(address: object, peer: str) -> None:
    assert peer_of(address) == peer
