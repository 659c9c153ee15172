"""How long fetches take is learned by pool, within bounds, and survives a restart."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.costmodel import CostModel, decode_model, encode_model
from flowmesh_core.costmodel.devices import FETCH_CONNECTIONS, FETCH_PIECE_BYTES
from flowmesh_core.costmodel.fetch_times import (
    LEARNED_FROM_BYTES,
    POOLS_MAX,
    SLOWDOWN_MAX,
    SLOWDOWN_MIN,
)

GB = 10**9
LLAMA_8B = 16_060_000_000
CONNECTION = 87.5e6
sizes = st.integers(LEARNED_FROM_BYTES, 10**12)


def took_s(size_bytes: int, network: float) -> float:
    """What a fetch takes if a machine's network carries so many bytes a second."""
    first = min(size_bytes, FETCH_PIECE_BYTES)
    several = min(FETCH_CONNECTIONS * CONNECTION, network)
    return first / min(CONNECTION, network) + (size_bytes - first) / several


def test_a_pool_that_was_not_observed_has_the_prior() -> None:
    model = CostModel()
    model.observe_fetch("leased", LLAMA_8B, 120.0)
    for size in (0, 1, FETCH_PIECE_BYTES, LLAMA_8B):
        assert model.fetch_s(size, "pods") == model.fetch_s(size) == CostModel().fetch_s(size)


@given(sizes, sizes, st.floats(2e6, 7e8))
def test_after_one_fetch_any_other_is_expected_as_the_network_carries_it(
    one: int, other: int, network: float
) -> None:
    model = CostModel()
    model.observe_fetch("leased", one, took_s(one, network))
    assert model.fetch_s(other, "leased") == pytest.approx(took_s(other, network), rel=1e-6)
    small = FETCH_PIECE_BYTES // 2
    assert model.fetch_s(small, "leased") == pytest.approx(took_s(small, network), rel=1e-6)


@given(sizes, st.floats(1 / 30, 1.0))
def test_a_network_of_quicker_connections_is_learned_too(size: int, share: float) -> None:
    model = CostModel()
    fetch_s = share * model.fetch_s(size)
    model.observe_fetch("near", size, fetch_s)
    assert model.fetch_s(size, "near") == pytest.approx(fetch_s, rel=1e-6)


def test_a_small_fetch_says_nothing() -> None:
    model = CostModel()
    model.observe_fetch("p", LEARNED_FROM_BYTES - 1, 100.0)
    assert not model.fetches.by_pool
    model.observe_fetch("p", LEARNED_FROM_BYTES, 100.0)
    assert model.fetches.by_pool


@pytest.mark.parametrize("fetch_s", [0.0, -1.0, math.nan, math.inf])
def test_an_invalid_duration_is_not_learned(fetch_s: float) -> None:
    model = CostModel()
    model.observe_fetch("p", LLAMA_8B, fetch_s)
    assert not model.fetches.by_pool


@given(
    st.lists(st.tuples(st.integers(0, 1 << 60), st.floats(5e-324, 1e9)), max_size=8),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
)
def test_whatever_is_observed_the_expectation_is_bounded_and_grows_with_the_bytes(
    observed: list[tuple[int, float]], size: int, more: int
) -> None:
    model = CostModel()
    for fetched_bytes, fetch_s in observed:
        model.observe_fetch("p", fetched_bytes, fetch_s)
    prior_s, found_s = model.fetch_s(size), model.fetch_s(size, "p")
    assert SLOWDOWN_MIN * prior_s * 0.999 <= found_s <= SLOWDOWN_MAX * prior_s * 1.001
    assert found_s <= model.fetch_s(size + more, "p")


def test_one_odd_fetch_among_many_moves_the_expectation_little_and_a_change_is_followed() -> None:
    model = CostModel()
    for _ in range(50):
        model.observe_fetch("p", LLAMA_8B, 120.0)
    assert model.fetch_s(LLAMA_8B, "p") == pytest.approx(120.0)
    model.observe_fetch("p", LLAMA_8B, 240.0)
    assert model.fetch_s(LLAMA_8B, "p") == pytest.approx(120.0 * 2**0.1, rel=0.01)
    for _ in range(50):
        model.observe_fetch("p", LLAMA_8B, 30.0)
    assert model.fetch_s(LLAMA_8B, "p") == pytest.approx(30.0, rel=0.05)


def test_the_pool_observed_longest_ago_is_forgotten_first() -> None:
    model = CostModel()
    for number in range(POOLS_MAX):
        model.observe_fetch(f"p{number}", GB, 9.0)
    model.observe_fetch("p0", GB, 9.0)
    model.observe_fetch("new", GB, 9.0)
    assert len(model.fetches.by_pool) == POOLS_MAX
    assert "p1" not in model.fetches.by_pool
    assert {"p0", "p2", "new"} <= set(model.fetches.by_pool)


def test_what_is_known_of_networks_comes_back_from_the_stored_form() -> None:
    model = CostModel()
    for fetch_s in (100.0, 140.0):
        model.observe_fetch("leased", LLAMA_8B, fetch_s)
    back = decode_model(encode_model(model))
    assert encode_model(back) == encode_model(model)
    assert back.fetch_s(GB, "leased") == model.fetch_s(GB, "leased") != model.fetch_s(GB)
    for one in (back, model):
        one.observe_fetch("leased", LLAMA_8B, 70.0)
    assert back.fetch_s(GB, "leased") == model.fetch_s(GB, "leased")


def test_the_stored_form_of_an_older_release_keeps_all_else_and_has_the_prior_of_networks() -> None:
    model = CostModel()
    model.memory_mib_by_level["cpu", "data.sql", "x"] = 77
    model.observe_fetch("leased", LLAMA_8B, 120.0)
    stored = json.loads(encode_model(model))
    assert stored["version"] == 1, "else older releases throw the whole model away"
    del stored["fetches"]
    back = decode_model(json.dumps(stored).encode())
    assert back.memory_mib_by_level == model.memory_mib_by_level
    assert back.fetch_s(GB, "leased") == CostModel().fetch_s(GB)
