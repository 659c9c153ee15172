"""Prompts with one beginning go to one replica, as long as it is not overloaded."""

import random
from collections import Counter, OrderedDict
from collections.abc import Iterator

import pytest

from flowmesh_core.serving.route.prefix_affinity import BLOCK_BYTES, BLOCKS_MAX, prefix_key
from flowmesh_core.serving.route.replica_choice import Candidate, choose_replica
from flowmesh_core.stages.keyed_choice import LOAD_BOUND

PATHS = ("/v1/chat/completions",)
SYSTEM = "You answer questions about the handbook. " * 20


def test_equal_beginnings_have_one_key_and_others_another() -> None:
    one = prefix_key("salt", ["x" * 5000, "first"])
    assert one == prefix_key("salt", ["x" * 5000, "second"])
    assert one != prefix_key("salt", ["y" * 5000, "first"])


def test_texts_that_begin_alike_have_one_key_however_they_end() -> None:
    document = "x" * (BLOCK_BYTES * BLOCKS_MAX)
    assert len({prefix_key("salt", ["user", document + end]) for end in ("", "a", "bb" * 900)}) == 1


def test_no_more_of_a_prompt_is_read_than_its_key_needs() -> None:
    read = []

    def texts() -> Iterator[str]:
        for n in range(1000):
            read.append(n)
            yield "word " * 20

    assert prefix_key("salt", texts())
    assert len(read) <= BLOCK_BYTES * BLOCKS_MAX / 100 + 1


def test_tenants_have_keys_of_their_own() -> None:
    assert prefix_key("a", ["x" * 5000]) != prefix_key("b", ["x" * 5000])
    assert prefix_key("a", ["bx" * 500]) != prefix_key("ab", ["xb" * 500])


def test_a_short_prompt_has_no_key() -> None:
    assert prefix_key("salt", ["short"]) == ""
    assert prefix_key("salt", []) == ""
    assert prefix_key("salt", ["x" * BLOCK_BYTES]) != ""


def test_where_messages_end_is_a_part_of_the_key() -> None:
    assert prefix_key("s", ["ab" * 200, "cd" * 200]) != prefix_key("s", ["ab" * 200 + "cd" * 200])


@pytest.mark.parametrize("text", ["\ud800" * 600, "\U0001f600" * 200])
def test_any_text_has_a_key(text: str) -> None:
    assert prefix_key("s", [text]) == prefix_key("s", [text])


def test_a_growing_conversation_changes_its_key_only_when_it_doubles() -> None:
    texts: list[str] = []
    keys = set()
    for turn in range(60):
        texts.append(f"turn {turn}: {'word ' * 10}")
        keys.add(prefix_key("salt", texts))
    assert len(keys - {""}) <= BLOCKS_MAX.bit_length()


class PrefixCaches:
    """The prefix caches of some replicas: blocks of bytes, the least recently used go first."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._by_replica: dict[str, OrderedDict[str, None]] = {}

    def read(self, replica: str, prompt: str) -> float:
        """Returns the share of a prompt's blocks that the replica had, and stores all of them."""
        cache = self._by_replica.setdefault(replica, OrderedDict())
        ends = range(BLOCK_BYTES, len(prompt) + 1, BLOCK_BYTES)
        hits = 0
        for end in ends:
            if prompt[:end] not in cache:
                break
            hits += 1
        for end in ends:
            cache[prompt[:end]] = None
            cache.move_to_end(prompt[:end])
        while len(cache) > self._blocks:
            cache.popitem(last=False)
        return hits / max(1, len(ends))


def hit_rate(*, by_prefix: bool) -> tuple[float, float]:
    """The part of all blocks that were cached, and the most loaded replica over the mean."""
    rng, caches, hits = random.Random(5), PrefixCaches(400), []
    replicas = [Candidate(f"r{n}", PATHS, 8) for n in range(4)]
    running: list[Candidate] = []
    served: Counter[str] = Counter()
    talks: dict[int, str] = {}
    for n in range(2000):
        talk = rng.randrange(40)
        before = talks.get(talk, f"talk {talk} " * 60)
        prompt = talks[talk] = (
            (before + f"turn {n} " * 12)[-6000:]
            if len(before) > 6000
            else (before + f"turn {n} " * 12)
        )
        key = prefix_key("salt", [prompt]) if by_prefix else ""
        chosen = choose_replica(replicas, PATHS[0], request=str(n), key=key)
        assert chosen is not None
        hits.append(caches.read(chosen.replica_id, prompt))
        served[chosen.replica_id] += 1
        chosen.own += 1
        running.append(chosen)
        if len(running) > 16:
            running.pop(rng.randrange(len(running))).own -= 1
    return sum(hits) / len(hits), max(served.values()) / (2000 / 4)


def test_prefix_affinity_finds_more_in_the_caches_and_overloads_no_replica() -> None:
    found, most = hit_rate(by_prefix=True)
    without, _ = hit_rate(by_prefix=False)
    assert found > 1.3 * without
    assert most <= LOAD_BOUND + 0.1
