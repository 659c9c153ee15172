"""The slowest paths of random graphs give the same split as all of their paths."""

import random

import pytest

from flowmesh_core.serving.plan.latency_split import Path, Variant, split_latency
from flowmesh_core.serving.plan.stage_paths import chain_of, slowest_paths, stage_timings
from flowmesh_core.stages.service_graph import LoadedGraph, ServiceGraph, Stage
from flowmesh_core.stages.stage_timing import StageTiming

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")


def random_graph(rng: random.Random) -> ServiceGraph:
    names = [f"s{n}" for n in range(rng.randint(1, 8))]
    components = [f"c{rng.randint(0, 4)}" for _ in names]
    stages = tuple(
        Stage(name, component, "", {f"i{b}": b for b in names[:n] if rng.random() < 0.4})
        for n, (name, component) in enumerate(zip(names, components, strict=True))
    )
    reply = {n: n for n in rng.sample(names, rng.randint(1, len(names)))}
    return ServiceGraph(stages, reply)


def all_paths(graph: ServiceGraph) -> list[tuple[str, ...]]:
    """Every chain of stages from one that needs no other to the reply, walked here."""
    needs = {s.name: list(s.inputs.values()) for s in graph.stages}
    found: list[tuple[str, ...]] = []

    def walk(chain: tuple[str, ...]) -> None:
        if not needs[chain[0]]:
            found.append(chain)
        for before in needs[chain[0]]:
            walk((before, *chain))

    for last in graph.reply.values():
        walk((last,))
    return found


def test_the_split_is_that_of_all_paths() -> None:
    rng = random.Random(5)
    for _ in range(500):
        graph = random_graph(rng)
        component = {s.name: s.component for s in graph.stages}
        alone = {c: rng.uniform(0.01, 1.0) for c in component.values()}
        every = [
            Path({c: chain_components.count(c) for c in chain_components})
            for chain in all_paths(graph)
            if (chain_components := [component[s] for s in chain])
        ]
        latency = rng.uniform(0.1, 4.0)
        few = slowest_paths(LoadedGraph(graph), alone)
        assert len(few) <= len(graph.stages)
        a = split_latency(latency, [Variant(few)], alone)
        b = split_latency(latency, [Variant(tuple(every))], alone)
        assert a.target_s == pytest.approx(b.target_s)
        assert bool(a.problems) == bool(b.problems)
        seconds = max(sum(alone[component[s]] for s in chain) for chain in all_paths(graph))
        chain = chain_of(LoadedGraph(graph), alone)
        assert chain in all_paths(graph)
        assert sum(alone[component[s]] for s in chain) == pytest.approx(seconds)


def test_a_problem_names_the_stage_its_component_and_the_milliseconds() -> None:
    stages = (Stage("read", "a", ""), Stage("rank", "b", "", {"x": "read"}))
    graph = LoadedGraph(ServiceGraph(stages, {"text": "rank"}))
    alone = {"a": 0.02, "b": 0.3}
    split = split_latency(0.1, [Variant(slowest_paths(graph, alone))], alone)
    assert split.problems == (
        "read -> rank takes at least 320 ms, the target is 100 ms; "
        "stage rank (component b) alone takes 300 ms of it",
    )


@pytest.mark.parametrize("seed", [7, FRESH])
def test_what_comes_after_a_stage_is_the_slowest_of_all_its_ways_to_the_reply(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    rng = random.Random(seed)
    for _ in range(500):
        graph = random_graph(rng)
        component = {s.name: s.component for s in graph.stages}
        alone = {c: rng.uniform(0.01, 1.0) for c in component.values()}
        ways: dict[str, list[tuple[str, ...]]] = {}
        for chain in all_paths(graph):
            for n, stage in enumerate(chain):
                ways.setdefault(stage, []).append(chain[n:])
        found = stage_timings(LoadedGraph(graph), alone, {"c0": 0.5})
        assert found.keys() == ways.keys()
        for stage, timing in found.items():
            own = component[stage]
            slowest = max(ways[stage], key=lambda way: sum(alone[component[s]] for s in way))
            visits = [component[s] for s in slowest].count(own)
            rest_s = sum(alone[component[s]] for s in slowest if component[s] != own)
            assert timing.visits == visits
            assert timing.rest_s == pytest.approx(rest_s)
            assert timing.target_s == (0.5 if own == "c0" else 0.0)


def test_a_component_that_is_called_again_has_two_visits_and_the_others_are_the_rest() -> None:
    stages = (
        Stage("draft", "llm", ""),
        Stage("check", "rank", "", {"text": "draft"}),
        Stage("final", "llm", "", {"text": "check"}),
    )
    graph = LoadedGraph(ServiceGraph(stages, {"text": "final"}))
    assert stage_timings(graph, {"llm": 2.0, "rank": 0.5}, {"llm": 3.0, "rank": 0.75}) == {
        "draft": StageTiming(3.0, 2, 0.5),
        "check": StageTiming(0.75, 1, 2.0),
        "final": StageTiming(3.0, 1, 0.0),
    }
