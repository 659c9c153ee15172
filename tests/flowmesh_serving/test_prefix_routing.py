"""Prompts that begin alike reach one replica of a model, by a real router and its sockets."""

import contextlib
import random
import secrets
import string
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.played_replicas import PlayedReplicas, played_replicas
from tests.flowmesh_serving.stack import MODEL, SERVICE, TOKEN, router_of, services, until

from flowmesh_core.openai.request import CHAT, COMPLETIONS
from flowmesh_core.protocol.router_services import ServiceToken, token_hash
from flowmesh_core.protocol.serving import ReplicaLoad, ReplicaLoads
from flowmesh_serving.http import openai

BEGINNINGS = 24
"""One of two replicas gets none of so many once in eight million times."""
OTHER_TOKEN = "fm-token-of-team-b"
TOKENS = (
    ServiceToken(token_hash(TOKEN), "team-a"),
    ServiceToken(token_hash(OTHER_TOKEN), "team-b"),
)


@pytest.fixture
def rng() -> random.Random:
    """Returns fresh dice."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    return random.Random(seed)


def text(rng: random.Random, size: int = 2_100) -> str:
    """Returns a text that no test has used before."""
    return "".join(rng.choices(string.ascii_letters + " ", k=size))


def says(content: Any, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **more}


def load(replica_id: str, calls_max: int = 4) -> ReplicaLoad:
    return ReplicaLoad(replica_id, SERVICE, (CHAT, COMPLETIONS), calls_max)


@contextlib.asynccontextmanager
async def replicas(folder: Path, *loads: ReplicaLoad) -> AsyncIterator[PlayedReplicas]:
    async with (
        router_of(folder, services(tokens=TOKENS, in_flight_max=256)) as stack,
        played_replicas(stack, *loads) as played,
    ):
        yield played


def _system(beginning: str, end: str) -> dict[str, Any]:
    system = {"role": "system", "content": beginning}
    return {"model": MODEL, "messages": [system, {"role": "user", "content": end}]}


def _tools(beginning: str, end: str) -> dict[str, Any]:
    function = {"name": "f", "description": beginning, "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}]
    return says(end, tools=tools, tool_choice="none")


KINDS: dict[str, Any] = {
    "a message": (CHAT, lambda b, e: says(b + e)),
    "a message in parts": (CHAT, lambda b, e: says([{"type": "text", "text": t} for t in (b, e)])),
    "a system message": (CHAT, _system),
    "tools": (CHAT, _tools),
    "a stream": (CHAT, lambda b, e: says(b + e, stream=True)),
    "a prompt": (COMPLETIONS, lambda b, e: {"model": MODEL, "prompt": b + e}),
    "several prompts": (COMPLETIONS, lambda b, e: {"model": MODEL, "prompt": [b + e, b]}),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_prompts_that_begin_alike_reach_one_replica_and_others_are_spread(
    tmp_path: Path, kind: str, rng: random.Random
) -> None:
    path, body_of = KINDS[kind]
    async with replicas(tmp_path, load("one"), load("two")) as played:
        beginnings = [text(rng) for _ in range(BEGINNINGS)]
        chosen: dict[str, set[str]] = {beginning: set() for beginning in beginnings}
        for _ in range(3):
            for beginning in rng.sample(beginnings, k=BEGINNINGS):
                body = body_of(beginning, text(rng, rng.randint(1, 3_000)))
                chosen[beginning].add(await played.ask(path, body))
    assert all(len(of_one) == 1 for of_one in chosen.values())
    assert set.union(*chosen.values()) == {"one", "two"}


async def test_prompts_that_are_shorter_than_a_prefix_are_spread(
    tmp_path: Path, rng: random.Random
) -> None:
    short = text(rng, 200)
    async with replicas(tmp_path, load("one"), load("two")) as played:
        assert {await played.ask(CHAT, says(short)) for _ in range(BEGINNINGS)} == {"one", "two"}


async def test_tenants_have_keys_of_their_own_as_they_have_caches(
    tmp_path: Path, rng: random.Random
) -> None:
    other = {"Authorization": f"Bearer {OTHER_TOKEN}"}
    bodies = [says(text(rng)) for _ in range(BEGINNINGS)]
    async with replicas(tmp_path, load("one"), load("two")) as played:
        own = [await played.ask(CHAT, body) for body in bodies]
        assert [await played.ask(CHAT, body) for body in bodies] == own
        assert [await played.ask(CHAT, body, **other) for body in bodies] != own


async def test_only_the_prompts_of_a_replica_that_goes_move(
    tmp_path: Path, rng: random.Random
) -> None:
    bodies = [says(text(rng)) for _ in range(BEGINNINGS)]
    async with replicas(tmp_path, load("one"), load("two"), load("three")) as played:
        before = [await played.ask(CHAT, body) for body in bodies]
        gone = rng.choice(before)
        left = [load(name) for name in {"one", "two", "three"} - {gone}]
        played.hub.say(ReplicaLoads(tuple(left)))
        table = played.stack.router._replicas
        await until(lambda: table.count(SERVICE) == 2)
        after = [await played.ask(CHAT, body) for body in bodies]
        moved = [n for n, name in enumerate(before) if after[n] != name]
        assert moved == [n for n, name in enumerate(before) if name == gone]


async def test_a_load_beyond_the_bound_goes_to_another_replica(
    tmp_path: Path, rng: random.Random
) -> None:
    beginning = text(rng)
    bodies = [says(beginning + text(rng, 9)) for _ in range(40)]
    async with replicas(tmp_path, load("one", 64), load("two", 64)) as played:
        chosen = Counter(await played.hold(CHAT, bodies))
    (_, most), (_, least) = chosen.most_common()
    assert most <= 25, "1.25 times the mean of 20"
    assert least >= 15
    assert most > 20, "and it has more than the other, since it has the beginning"


async def test_no_prompt_waits_for_its_replica_while_another_has_a_place_free(
    tmp_path: Path, rng: random.Random
) -> None:
    bodies = [says(text(rng))] * 8
    async with replicas(tmp_path, load("one", 4), load("two", 4)) as played:
        chosen = Counter(await played.hold(CHAT, bodies))
    assert chosen == {"one": 4, "two": 4}


async def test_a_prompt_whose_replica_refuses_it_goes_to_another_and_then_back(
    tmp_path: Path, rng: random.Random
) -> None:
    body = says(text(rng))
    async with replicas(tmp_path, load("one"), load("two")) as played:
        its = await played.ask(CHAT, body)
        played.full = {its}
        assert await played.ask(CHAT, body) != its
        played.full = set()
        assert await played.ask(CHAT, body) == its


async def test_a_service_of_one_replica_reads_no_prompt_to_choose_it(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(openai, "prefix_key", lambda salt, _: read.append(salt) or "")
    async with replicas(tmp_path, load("one")) as played:
        assert await played.ask(CHAT, says(text(rng))) == "one"
    assert not read
