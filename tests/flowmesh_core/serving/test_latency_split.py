"""The split of a latency target keeps the target on every path, and uses all of it on one."""

import random
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest

from flowmesh_core.serving.plan.latency_split import LatencySplit, Path, Variant, split_latency

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")
Split = Callable[[float, Sequence[Variant], Mapping[str, float]], LatencySplit]


def random_paths(rng: random.Random) -> tuple[list[Path], dict[str, float]]:
    """All paths of a random graph of stages, walked here, and each component's time alone."""
    stages = [f"c{n}" for n in range(rng.randint(1, 7))]
    after: dict[str, list[str]] = {
        s: [t for t in stages[n + 1 :] if rng.random() < 0.4] for n, s in enumerate(stages)
    }
    visits = {s: rng.randint(1, 4) for s in stages}
    chains: list[list[str]] = []

    def walk(chain: list[str]) -> None:
        if not after[chain[-1]]:
            chains.append(chain)
        for following in after[chain[-1]]:
            walk([*chain, following])

    for start in stages:
        if not any(start in onward for onward in after.values()):
            walk([start])
    alone = {s: rng.uniform(0.001, 0.2) for s in stages}
    return [
        Path({s: visits[s] for s in chain}, rng.uniform(0.0, 0.01) * len(chain)) for chain in chains
    ], alone


def seconds(path: Path, each: Mapping[str, float]) -> float:
    return path.handoffs_s + sum(each[c] * v for c, v in path.visits.items())


def broken(seed: int, split_target: Split) -> int:
    """In how many of 1,000 random services a split breaks a path, or leaves some of the target."""
    rng, found = random.Random(seed), 0
    for _ in range(1000):
        paths, alone = random_paths(rng)
        least = max(seconds(p, alone) for p in paths)
        latency = least * rng.uniform(1.0001, 4)
        split = split_target(latency, [Variant(tuple(paths))], alone)
        used = max(seconds(p, split.target_s) for p in paths)
        keeps = used == pytest.approx(latency, rel=1e-9)
        enough = all(split.target_s[c] >= alone[c] * (1 - 1e-9) for c in alone)
        found += not keeps or not enough or split.problems != ()
    return found


def unreported(seed: int, split_target: Split) -> int:
    """How many of 1,000 targets below the least time of a path are not reported."""
    rng, found = random.Random(seed), 0
    for _ in range(1000):
        paths, alone = random_paths(rng)
        least = max(seconds(p, alone) for p in paths)
        found += not split_target(least * 0.999, [Variant(tuple(paths))], alone).problems
    return found


@pytest.mark.parametrize("seed", [20, FRESH])
def test_every_path_keeps_the_target_and_the_tightest_uses_all_of_it(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    assert broken(seed, split_latency) == 0


@pytest.mark.parametrize("seed", [21, FRESH])
def test_a_target_below_the_least_time_of_a_path_is_always_reported(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    assert unreported(seed, split_latency) == 0


def by_the_first_path(
    latency_s: float, variants: Sequence[Variant], alone_s: Mapping[str, float]
) -> LatencySplit:
    """The mistake that a component has the share of one of its paths, not its least share."""
    target_s: dict[str, float] = {}
    for path in variants[0].paths:
        of_path = split_latency(latency_s, [Variant((path,))], alone_s).target_s
        target_s = {**of_path, **target_s}
    return LatencySplit(target_s, ())


def without_handoffs(
    latency_s: float, variants: Sequence[Variant], alone_s: Mapping[str, float]
) -> LatencySplit:
    paths = (msgspec.structs.replace(p, handoffs_s=0.0) for p in variants[0].paths)
    return split_latency(latency_s, [Variant(tuple(paths))], alone_s)


def as_if_visited_once(
    latency_s: float, variants: Sequence[Variant], alone_s: Mapping[str, float]
) -> LatencySplit:
    paths = (
        msgspec.structs.replace(p, visits=dict.fromkeys(p.visits, 1)) for p in variants[0].paths
    )
    return split_latency(latency_s, [Variant(tuple(paths))], alone_s)


@pytest.mark.parametrize("mistake", [by_the_first_path, without_handoffs, as_if_visited_once])
def test_a_mistake_in_the_split_breaks_a_path(mistake: Split) -> None:
    assert broken(20, mistake) > 100


@pytest.mark.parametrize("mistake", [by_the_first_path, without_handoffs, as_if_visited_once])
def test_a_mistake_in_the_split_leaves_a_target_unreported(mistake: Split) -> None:
    assert unreported(21, mistake) > 100


def test_the_problem_names_the_path_the_milliseconds_and_the_slowest_component() -> None:
    split = split_latency(0.1, [Variant((Path({"a": 1, "b": 2}, 0.01),))], {"a": 0.02, "b": 0.05})
    assert split.problems == (
        "a -> b takes at least 130 ms, the target is 100 ms; b alone takes 100 ms of it",
    )


def test_a_fixed_target_is_kept_and_the_others_share_the_rest() -> None:
    paths = (Path({"a": 1, "b": 1}),)
    split = split_latency(1.0, [Variant(paths)], {"a": 0.1, "b": 0.1}, {"a": 0.3})
    assert split.target_s == pytest.approx({"a": 0.3, "b": 0.7})


def test_a_fixed_target_below_the_time_alone_is_a_problem() -> None:
    split = split_latency(1.0, [Variant((Path({"a": 1}),))], {"a": 0.4}, {"a": 0.3})
    assert split.problems == ("a has a target of 300 ms and takes 400 ms alone",)


def test_a_rare_variant_does_not_tighten_the_targets() -> None:
    often = Variant((Path({"a": 1}),), 0.96)
    rarely = Variant((Path({"a": 1, "slow": 1}),), 0.04)
    split = split_latency(1.0, [rarely, often], {"a": 0.1, "slow": 5.0})
    assert split.target_s == pytest.approx({"a": 1.0, "slow": 5.0})
    assert split.problems == ()
