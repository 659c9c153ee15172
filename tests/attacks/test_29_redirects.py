"""Attacker: T6, a server that a workflow calls or imports from.

Action: redirects to addresses inside, to other schemes, to itself for ever, and in several steps.
Must not happen: an address that may not be reached is, or a header of the user goes elsewhere.
"""

from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest
from tests.attacks.two_addresses import (
    CLIENTS,
    CLOSED,
    OPEN,
    Servers,
    called,
    redirect,
    two_servers,
)

from flowmesh_core.errors import FailureKind
from flowmesh_worker.engines.egress.addresses import AddressPolicy
from flowmesh_worker.engines.http.call import Credential

OPENED = AddressPolicy([ip_network(f"{OPEN}/32")])
TARGETS = (
    "http://{closed}:{port}/", "http://{closed}:{port}", "//{closed}:{port}/", "https://10.0.0.1/",
    "https://169.254.169.254/latest/meta-data/", "https://[::1]/", "https://[fd00::1]/",
    "https://[::ffff:10.0.0.1]/", "https://localhost/", "https://127.1/", "https://2130706433/",
    "https://0x7f.1/", "https://user@10.0.0.1/", "https://{open}@10.0.0.1/", "http://8.8.8.8/",
    "file:///etc/passwd", "ftp://{closed}/", "gopher://{closed}/",
    "data:text/plain,x", "javascript:1", "https://", "https:///x",
    "http://{closed}:{port}%2f@{open}/",
)  # fmt: skip


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async with two_servers() as found:
        yield found


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("target", TARGETS)
async def test_no_redirect_leads_inside(client: Any, target: str, servers: Servers) -> None:
    names = {"closed": CLOSED, "open": OPEN, "port": servers.port}
    servers.answer = redirect(target.format(**names))
    assert await client(OPENED, f"http://{OPEN}:{servers.port}/") in (
        FailureKind.BAD_INPUT, FailureKind.ENGINE,
    )  # fmt: skip
    assert len(servers.heads[OPEN]) == 1
    assert servers.heads[CLOSED] == []


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("to", ["/there", "there", "?there", "http://{open}:{port}/there"])
async def test_a_redirect_to_an_opened_address_is_followed(
    client: Any, to: str, servers: Servers
) -> None:
    servers.answer = redirect(to.format(open=OPEN, port=servers.port))
    assert await client(OPENED, f"http://{OPEN}:{servers.port}/") == "ok"
    assert len(servers.heads[OPEN]) == 2
    assert b"there" in servers.heads[OPEN][1]


@pytest.mark.parametrize("client", CLIENTS)
async def test_redirects_without_end_are_followed_five_times(
    client: Any, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Servers, "answer", redirect("/round"))
    servers.answer = redirect("/round")
    assert await client(OPENED, f"http://{OPEN}:{servers.port}/") == FailureKind.BAD_INPUT
    assert len(servers.heads[OPEN]) == 6


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_a_credential_stays_with_its_origin(elsewhere: bool, servers: Servers) -> None:
    """Another port is another origin; both are opened here, so only the credential is at stake."""
    both = AddressPolicy([ip_network("127.0.0.0/8")])
    at = CLOSED if elsewhere else OPEN
    servers.answer = redirect(f"http://{at}:{servers.port}/there")
    credential = Credential("Authorization", "Bearer of-the-user", "of-the-user", lambda _: None)
    url = f"http://{OPEN}:{servers.port}/"
    assert await called(both, url, credential=credential) == "ok"
    assert b"of-the-user" in servers.heads[OPEN][0]
    assert (b"of-the-user" in servers.heads[at][-1]) is not elsewhere
