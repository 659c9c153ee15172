"""Attacker: T5, T6, content that names a host, or a server that redirects to one.

Action: writes 127.0.0.1 in every way that some client understands, in imports and in calls.
Must not happen: a connection to this machine, or to another address that is not public.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.egress.addresses import AddressPolicy, FilteringResolver
from flowmesh_worker.engines.egress.urls import parse_target
from flowmesh_worker.engines.http.call import Call, CallError
from flowmesh_worker.engines.http.client import HttpClient
from flowmesh_worker.engines.imports.download import Downloader
from flowmesh_worker.engines.models.bucket import fetch_bucket
from flowmesh_worker.secret_values import SecretValues

HOSTS = (
    "127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "127.0.1", "127.00.00.01", "127.0.0.01",
    "0177.0.0.1", "0177.1", "0177.0.1", "00000177.0.0.1", "0x7f.0.0.1", "0x7f.1", "0X7F.1",
    "0x7f.0x0.0x0.0x1", "0x7f000001", "0X7F000001", "2130706433", "017700000001", "127.0.0.1.",
    "127.1.", "2130706433.", "0x7f000001.", "0", "0.", "0x0", "00", "0.0", "0.0.0.0", "localhost",
    "localhost.", "LOCALHOST", "\uff11\uff12\uff17.0.0.1", "①②⑦.0.0.1", "127。0。0。1",
    "127\uff0e0\uff0e0\uff0e1", "\uff11\uff12\uff17.1",
    "[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[::ffff:0:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b:1::127.0.0.1]",
    "[2002:7f00:1::]", "[fe80::5efe:127.0.0.1]", "127.0.0.1.1", "x.127", "x.0x7f", "256.0.0.1",
    "127.0.0.0x1", "127.0.0.1%00",
)  # fmt: skip

UNKNOWN_NAMES = frozenset({"localhost.", "127.0.0.1%00"})
"""Of which a resolver may say that there is no such name."""


@dataclass
class Listener:
    """A server on this machine that counts who comes."""

    port: int
    connections: int = 0


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    found = Listener(0)

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    await server.wait_closed()


async def _imports(rule: AddressPolicy, url: str) -> FailureKind:
    with pytest.raises(AttemptError) as refused:
        await Downloader(rule, 1000).fetch(url)
    return FailureKind(refused.value.failure.kind)


async def _calls(rule: AddressPolicy, url: str) -> FailureKind:
    client = HttpClient(rule)
    try:
        with pytest.raises(CallError) as refused:
            await client.call(Call("GET", url, {}, retries=0))
    finally:
        await client.close()
    return FailureKind(refused.value.kind)


async def _fetches_model(url: str, folder: Path) -> FailureKind:
    secrets = SecretValues.for_any_host({"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"})
    with pytest.raises(AttemptError) as refused:
        await fetch_bucket(f"s3://bucket/model?endpoint={quote(url)}", folder / "model", secrets)
    return FailureKind(refused.value.failure.kind)


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_no_bucket_of_a_model_is_on_this_machine(
    scheme: str, listener: Listener, tmp_path: Path
) -> None:
    for host in HOSTS:
        kind = await _fetches_model(f"{scheme}://{host}:{listener.port}", tmp_path)
        assert kind == FailureKind.BAD_INPUT or host in UNKNOWN_NAMES, host
    for region in ("x.127.0.0.1/", "@127.0.0.1", "evil.example.com#", "a/b"):
        with pytest.raises(AttemptError, match="not a name"):
            await fetch_bucket(
                f"s3://bucket/m?region={quote(region)}", tmp_path / "m", SecretValues({}, {})
            )
    assert listener.connections == 0


@pytest.mark.parametrize("host", HOSTS)
async def test_no_spelling_of_this_machine_is_reached(listener: Listener, host: str) -> None:
    rule = AddressPolicy()
    for scheme in ("https", "http"):
        url = f"{scheme}://{host}:{listener.port}/"
        kinds = {await _imports(rule, url), await _calls(rule, url)}
        assert kinds == {FailureKind.BAD_INPUT} or host in UNKNOWN_NAMES
    assert listener.connections == 0


async def test_an_opened_address_is_reached_only_in_its_usual_spelling(listener: Listener) -> None:
    opened = AddressPolicy([ip_network("127.0.0.0/8")])
    url = f"http://127.0.0.1:{listener.port}/"
    assert (await Downloader(opened, 1000).fetch(url)).content == b"ok"
    client = HttpClient(opened)
    assert (await client.call(Call("GET", url, {}, retries=0))).text == "ok"
    await client.close()
    assert listener.connections == 2
    # But not in another spelling, of which a client of another release may make something else.
    assert await _imports(opened, f"http://127.1:{listener.port}/") == FailureKind.BAD_INPUT
    assert listener.connections == 2


def _part(value: int) -> st.SearchStrategy[str]:
    zeros = st.integers(0, 3).map(lambda n: "0" * n)
    return st.one_of(
        st.just(str(value)),
        zeros.map(lambda z: f"0{z}{value:o}"),
        st.tuples(st.sampled_from(["0x", "0X"]), zeros).map(lambda p: f"{p[0]}{p[1]}{value:x}"),
    )


SPLITS = ((127, 0, 0, 1), (127, 0, 1), (127, 1), (0x7F000001,))
SPELLINGS = st.sampled_from(SPLITS).flatmap(
    lambda parts: st.tuples(
        st.tuples(*map(_part, parts)).map(".".join), st.sampled_from(["", "."])
    ).map("".join)
)


@given(SPELLINGS, st.sampled_from(["https://{}/", "http://user:pw@{}:80/x?y#z"]))
def test_every_spelling_of_this_machine_is_checked_before_any_client_sees_it(
    host: str, form: str
) -> None:
    try:
        place = parse_target(form.format(host))
    except ValueError:
        assert host != "127.0.0.1"
        return
    assert (host, place.literal) == ("127.0.0.1", "127.0.0.1")
    assert not AddressPolicy().permits(place.literal)


@given(SPELLINGS.filter(lambda host: host != "127.0.0.1"))
def test_no_resolver_is_asked_for_an_address_in_an_unusual_spelling(host: str) -> None:
    async def ask() -> None:
        await FilteringResolver(AddressPolicy()).resolve(host)

    with pytest.raises(AttemptError, match="write an IPv4 address as four numbers"):
        asyncio.run(ask())


@pytest.mark.parametrize(
    "host", ["example.com", "1.example.com", "x1", "a.b2", "xn--0.x", "8.8.8.8"]
)
def test_usual_spellings_of_names_and_addresses_are_parsed(host: str) -> None:
    assert parse_target(f"https://{quote(host)}/").host == host
