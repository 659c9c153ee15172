import random
from itertools import pairwise

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from flowmesh_core.dataset import AVERAGE_ROWS, borders

ROWS = 2_000


def row(n: int) -> str:
    return blake3(n.to_bytes(8, "big")).hexdigest()


def rows(count: int, seed: int) -> list[str]:
    return [row(seed * 1_000_000 + n) for n in range(count)]


def chunks(digests: list[str], average: int = AVERAGE_ROWS) -> list[tuple[str, ...]]:
    starts = borders(digests, average=average)
    return [tuple(digests[a:b]) for a, b in pairwise([*starts, len(digests)])]


def touched(before: list[str], after: list[str], average: int = AVERAGE_ROWS) -> list[int]:
    """The sizes of the chunks of ``after`` that ``before`` did not have."""
    known = set(chunks(before, average))
    return [len(c) for c in chunks(after, average) if c not in known]


@given(
    st.lists(st.binary(min_size=2, max_size=3), unique=True, max_size=120),
    st.data(),
    st.sampled_from([2, 4, 8, 32]),
)
@settings(deadline=None, max_examples=300)
def test_one_insert_touches_at_most_three_chunks_whatever_the_distinct_rows(
    raw: list[bytes], data: st.DataObject, average: int
) -> None:
    # The rows' own bytes stand for digests, so that hypothesis can build any order of them.
    before = [r.hex() for r in raw]
    position = data.draw(st.integers(0, len(before)))
    new = data.draw(st.binary(min_size=2, max_size=3).filter(lambda b: b.hex() not in before)).hex()
    after = [*before[:position], new, *before[position:]]
    limit = (
        10_000  # Pieces too long for the maximum take orders that digests practically never have.
    )
    starts = {m: borders(m, average=average, maximum=limit) for m in map(tuple, (before, after))}
    parts = [{m[a:b] for a, b in pairwise([*s, len(m)])} for m, s in starts.items()]
    assert len(parts[-1] - parts[0]) <= 3


@pytest.mark.parametrize("seed", range(6))
def test_one_insert_or_removal_in_two_thousand_rows_touches_at_most_three_chunks(seed: int) -> None:
    before = rows(ROWS, seed)
    for position in random.Random(seed).sample(range(ROWS), 60):
        inserted = [*before[:position], row(10**12 + position), *before[position:]]
        removed = [*before[:position], *before[position + 1 :]]
        for after in (inserted, removed):
            sizes = touched(before, after)
            assert len(sizes) <= 3
            assert sum(sizes) <= 0.15 * ROWS


@pytest.mark.parametrize("seed", range(30))
def test_twenty_inserts_in_one_region_run_again_at_most_fifteen_percent(seed: int) -> None:
    rng = random.Random(seed)
    before = rows(ROWS, seed)
    after = list(before)
    start = rng.randrange(ROWS - 100)
    for n in range(20):
        after.insert(start + rng.randrange(100), row(10**12 + seed * 100 + n))
    assert sum(touched(before, after)) <= 0.15 * len(after)


def test_the_same_rows_inside_a_larger_dataset_share_their_chunks() -> None:
    ours = rows(ROWS, 1)
    larger = [*rows(700, 2), *ours, *rows(900, 3)]
    new = sum(touched(larger, ours))
    assert new <= 2 * 8 * AVERAGE_ROWS  # the first chunk and the last
    assert new < 0.1 * ROWS


@given(st.lists(st.sampled_from("abcdef"), max_size=400), st.sampled_from([2, 5, 32]))
@settings(deadline=None)
def test_borders_cover_all_rows_within_the_limits_even_where_rows_repeat(
    digests: list[str], average: int
) -> None:
    starts = borders(digests, average=average)
    assert starts == sorted(set(starts))
    assert starts[:1] == ([0] if digests else [])
    sizes = [b - a for a, b in pairwise([*starts, len(digests)])] if starts else []
    assert sum(sizes) == len(digests)
    assert all(size <= 8 * average for size in sizes)
    assert all(size > average // 2 for size in sizes[1:])


def test_chunks_have_the_average_size() -> None:
    count = len(borders(rows(20_000, 7)))
    assert 0.9 * AVERAGE_ROWS <= 20_000 / count <= 1.15 * AVERAGE_ROWS


def test_equal_rows_are_cut_at_the_maximum() -> None:
    assert borders(["a"] * 300) == [0, 256]


@pytest.mark.parametrize(("average", "maximum"), [(1, None), (32, 63)])
def test_contradictory_limits_are_refused(average: int, maximum: int | None) -> None:
    with pytest.raises(ValueError, match="average >= 2"):
        borders(["a"], average=average, maximum=maximum)
