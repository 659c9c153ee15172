"""Attacker: T6, who owns a name and answers each question for it with another address.

Action: lets the name mean an allowed address when it is judged, and one inside when it is used.
Must not happen: a connection to an address that was not judged, for the first call or a later one.
"""

import socket
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest
from tests.attacks.two_addresses import (
    CLIENTS,
    CLOSED,
    OPEN,
    Servers,
    redirect,
    two_servers,
)

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.egress.addresses import AddressPolicy, require_public
from flowmesh_worker.engines.http.call import Call, CallError
from flowmesh_worker.engines.http.client import HttpClient
from flowmesh_worker.engines.imports.download import Downloader

NAME = "rebinding.example.com"
OPENED = AddressPolicy([ip_network(f"{OPEN}/32")])
# The addresses of the first question, of the second, and so on; the last stays.
ANSWERS = (
    [[CLOSED]],
    [[OPEN, CLOSED]],
    [[CLOSED, OPEN]],
    [[OPEN, "::1"]],
    [["::ffff:127.0.0.2"]],
    [["10.0.0.1"]],
    [[OPEN, "169.254.169.254"]],
)


class Names:
    """A name server that changes its mind; patched in place of the resolver's system call."""

    def __init__(self, answers: list[list[str]]) -> None:
        self.answers = answers
        self.questions = 0

    def __call__(self, host: str, port: Any, *rest: Any, **more: Any) -> list[Any]:
        if host != NAME:
            return _real(host, port, *rest, **more)
        found = self.answers[min(self.questions, len(self.answers) - 1)]
        self.questions += 1
        return [
            entry for address in found for entry in _real(address, port, type=socket.SOCK_STREAM)
        ]


_real: Any = socket.getaddrinfo


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async with two_servers() as found:
        yield found


def named(monkeypatch: pytest.MonkeyPatch, answers: list[list[str]]) -> Names:
    names = Names(answers)
    monkeypatch.setattr(socket, "getaddrinfo", names)
    return names


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("answers", ANSWERS, ids=str)
async def test_a_name_with_one_address_inside_is_refused(
    client: Any, answers: list[list[str]], servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch, answers)
    assert await client(OPENED, f"https://{NAME}:{servers.port}/") == FailureKind.BAD_INPUT
    assert servers.heads == {OPEN: [], CLOSED: []}


async def test_a_call_goes_to_the_address_that_was_judged(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = named(monkeypatch, [[OPEN], [CLOSED]])
    client = HttpClient(OPENED)
    url = f"http://{NAME}:{servers.port}/"
    try:
        assert (await client.call(Call("GET", url, {}, retries=0))).text == "ok"
        assert names.questions == 1, "the name is not asked for again to connect"
        with pytest.raises(CallError, match="not a public address"):  # the next call asks anew
            await client.call(Call("GET", url, {}, retries=0))
    finally:
        await client.close()
    assert [len(heads) for heads in servers.heads.values()] == [1, 0]


async def test_a_redirect_to_the_same_name_is_judged_again(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch, [[OPEN], [CLOSED]])
    servers.answer = redirect(f"http://{NAME}:{servers.port}/there")
    client = HttpClient(OPENED)
    try:
        with pytest.raises(CallError, match="not a public address"):
            await client.call(Call("GET", f"http://{NAME}:{servers.port}/", {}, retries=0))
    finally:
        await client.close()
    assert [len(heads) for heads in servers.heads.values()] == [1, 0]


async def test_an_import_judges_each_request(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import needs ``https:`` for a name, so here the connection's handshake fails."""
    monkeypatch.setattr("flowmesh_worker.engines.imports.download._CONNECT_S", 0.3)
    named(monkeypatch, [[OPEN], [CLOSED]])
    downloader = Downloader(OPENED, 1000)
    for kind in (FailureKind.ENGINE, FailureKind.BAD_INPUT):
        with pytest.raises(AttemptError) as failed:
            await downloader.fetch(f"https://{NAME}:{servers.port}/")
        assert failed.value.failure.kind == kind
    assert servers.heads[CLOSED] == []


async def test_an_endpoint_of_another_client_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    for answers in ANSWERS:
        named(monkeypatch, answers)
        with pytest.raises(AttemptError, match="not a public address"):
            await require_public(f"https://{NAME}:9000", OPENED)
    named(monkeypatch, [[OPEN]])
    await require_public(f"https://{NAME}:9000", OPENED)
