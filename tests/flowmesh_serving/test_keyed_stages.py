"""Requests with one value of a component's key reach one replica of it, by a real router."""

import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.flowmesh_serving.played_replicas import PlayedReplicas, played_replicas
from tests.flowmesh_serving.stack import TOKEN, router_of
from tests.flowmesh_serving.stage_stack import SERVICE, URL, entry_of, python, service_of

from flowmesh_core.protocol.router_services import ServiceToken, token_hash
from flowmesh_core.protocol.serving import ReplicaLoad
from flowmesh_core.serving.router_entry import router_entry

CODE = "def same(batch):\n    return batch\n"
WAYS = {"whole": {}, "by aiohttp": {"Accept": "text/event-stream"}}


def spec(key: str) -> dict[str, Any]:
    return {
        "components": {"only": python(CODE, "same", key=key)},
        "stages": [{"name": "one", "component": "only", "inputs": {"q": "request.q"}}],
        "reply": {"out": "one"},
    }


@contextlib.asynccontextmanager
async def replicas(
    folder: Path, key: str = "request.user", calls_max: int = 8
) -> AsyncIterator[PlayedReplicas]:
    loads = [
        ReplicaLoad(name, SERVICE, (), calls_max, component="only", sizes=(1,), seconds=(0.01,))
        for name in ("one", "two")
    ]
    service = service_of(spec(key))
    entry = router_entry(service, entry_of(service).graph)
    entry = msgspec.structs.replace(entry, tokens=(ServiceToken(token_hash(TOKEN), "team-a"),))
    async with (
        router_of(folder, (entry,)) as stack,
        played_replicas(stack, *loads) as played,
    ):
        yield played


@pytest.fixture
def users() -> list[str]:
    """Returns names that no test has used before."""
    found = [secrets.token_hex(4) for _ in range(24)]
    print(f"users {found}")  # noqa: T201 - shown where the test fails
    return found


@pytest.mark.parametrize("way", WAYS)
async def test_requests_with_one_key_reach_one_replica_and_others_are_spread(
    tmp_path: Path, way: str, users: list[str]
) -> None:
    chosen: dict[str, set[str]] = {user: set() for user in users}
    async with replicas(tmp_path) as played:
        for n in range(3):
            for user in secrets.SystemRandom().sample(users, k=len(users)):
                body = {"q": str(n), "user": user}
                chosen[user].add(await played.ask(URL, body, **WAYS[way]))
    assert all(len(of_one) == 1 for of_one in chosen.values())
    assert set.union(*chosen.values()) == {"one", "two"}


@pytest.mark.parametrize("body", [{"q": "1"}, {"q": "1", "user": None}])
async def test_requests_without_the_field_are_spread(tmp_path: Path, body: dict[str, Any]) -> None:
    async with replicas(tmp_path) as played:
        assert {await played.ask(URL, body) for _ in range(8)} == {"one", "two"}


async def test_no_request_waits_for_its_replica_while_another_has_a_place_free(
    tmp_path: Path, users: list[str]
) -> None:
    async with replicas(tmp_path, calls_max=4) as played:
        bodies = [{"q": str(n), "user": users[0]} for n in range(8)]
        assert Counter(await played.hold(URL, bodies)) == {"one": 4, "two": 4}
