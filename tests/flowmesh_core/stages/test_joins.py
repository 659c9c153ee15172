"""A stage gets the values of one request and one route, each set once, over any network."""

import random

import pytest
from tests.flowmesh_core.stages.lossy_network import Network

from flowmesh_core.stages.joins import EARLY_MAX, JoinTable

NEEDS = {"join": {"a", "b"}}


def test_a_set_leaves_once_and_what_comes_twice_is_counted() -> None:
    table = JoinTable[int]()
    assert table.add("r", 1, "join", "a", 1) is None  # before its route
    assert table.open("r", 1, NEEDS) == []
    assert table.add("r", 1, "join", "a", 7) is None
    done = table.add("r", 1, "join", "b", 2)
    assert done is not None
    assert (done.stage, done.values) == ("join", {"a": 1, "b": 2})
    assert table.add("r", 1, "join", "b", 3) is None
    assert table.open("r", 1, NEEDS) == []
    assert (table.counts.duplicates, table.counts.stale) == (3, 0)
    table.close("r")
    assert len(table) == 0


def test_a_higher_version_replaces_a_route_and_the_old_one_is_dropped() -> None:
    table = JoinTable[str]()
    table.open("r", 1, NEEDS)
    table.add("r", 1, "join", "a", "old")
    table.open("r", 2, NEEDS)
    assert table.add("r", 1, "join", "b", "old") is None
    assert table.open("r", 1, NEEDS) == []
    table.add("r", 2, "join", "a", "new")
    done = table.add("r", 2, "join", "b", "new")
    assert done is not None
    assert set(done.values.values()) == {"new"}
    assert table.counts.stale == 3


def test_a_stage_begins_early_only_where_one_value_is_missing_and_then_once() -> None:
    table = JoinTable[int]()
    assert table.begin_early("r", 1, "join", "b") is None  # has no route
    table.open("r", 1, NEEDS)
    assert table.begin_early("r", 1, "join", "b") is None  # lacks a too
    table.add("r", 1, "join", "a", 1)
    assert table.begin_early("r", 2, "join", "b") is None
    assert table.begin_early("r", 1, "join", "c") is None
    assert table.begin_early("r", 1, "join", "b") == {"a": 1}
    assert table.begin_early("r", 1, "join", "b") is None
    assert table.add("r", 1, "join", "b", 2) is None
    assert table.counts.duplicates == 1


def test_values_without_a_route_do_not_pile_up() -> None:
    table = JoinTable[int]()
    for number in range(2 * EARLY_MAX):
        table.add(f"r{number}", 1, "join", "a", 1)
    assert len(table) == EARLY_MAX


def checked(network: Network, requests: int) -> None:
    """Fails unless every request has one reply, of sets that were never mixed."""
    network.run(requests)
    assert (network.mixed, network.moved) == (0, 0), f"seed {network.seed}"
    assert set(network.replies.values()) == {1}, f"seed {network.seed}"
    assert len(network.replies) == requests
    assert max(network.routed.values()) > 1  # some were routed again


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param(10_000, marks=pytest.mark.slow),
        pytest.param(100_000, marks=pytest.mark.nightly),
    ],
)
def test_no_set_is_mixed_with_losses_repeats_and_lost_workers(requests: int) -> None:
    checked(Network(random.SystemRandom().randrange(1 << 30)), requests)


@pytest.mark.parametrize("sabotage", ["per-task", "no-version"])
def test_without_fixed_routes_or_versions_sets_are_mixed_or_never_complete(sabotage: str) -> None:
    with pytest.raises(AssertionError):
        checked(Network(7, sabotage), 1_000)
    checked(Network(7), 1_000)
