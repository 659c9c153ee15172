"""The paths of a request through the stages of a service, for its latency target.

They give the split of the target, and for each stage what comes after it.
"""

from collections.abc import Iterable, Mapping

from flowmesh_core.serving.plan.latency_split import Path
from flowmesh_core.stages.service_graph import REPLY, LoadedGraph
from flowmesh_core.stages.stage_timing import StageTiming


def slowest_paths(graph: LoadedGraph, alone_s: Mapping[str, float]) -> tuple[Path, ...]:
    """Returns the slowest path through each stage that the reply needs.

    A component's part of the target is least on the slowest path through its stages, so these
    stand for all paths, of which there may be very many.

    Args:
        graph: of the service.
        alone_s: by component, the time of a call alone.
    """
    own_s = {name: alone_s[stage.stage.component] for name, stage in graph.stages.items()}
    names = list(graph.stages)  # each after those that it needs
    before = _longest(names, own_s, {n: graph.stages[n].needs & own_s.keys() for n in names})
    after = _to_the_reply(graph, own_s)
    found = {(*before[n][1], *reversed(after[n][1][:-1])): n for n in names if n in after}
    return tuple(_path(graph, stages) for stages in found)


def stage_timings(
    graph: LoadedGraph, alone_s: Mapping[str, float], target_s: Mapping[str, float]
) -> dict[str, StageTiming]:
    """Returns what a call of each stage that the reply needs may take.

    Args:
        graph: of the service.
        alone_s: by component, the time of a call alone.
        target_s: by component, its part of the latency target; without it there is none.
    """
    own_s = {name: alone_s[stage.stage.component] for name, stage in graph.stages.items()}
    found = {}
    for name, (_, chain) in _to_the_reply(graph, own_s).items():
        component = graph.stages[name].stage.component
        others = [s for s in chain if graph.stages[s].stage.component != component]
        found[name] = StageTiming(
            target_s.get(component, 0.0), len(chain) - len(others), sum(own_s[s] for s in others)
        )
    return found


def chain_of(graph: LoadedGraph, alone_s: Mapping[str, float]) -> tuple[str, ...]:
    """Returns the stages of the slowest path of all, in order."""
    paths = slowest_paths(graph, alone_s)
    slowest = max(paths, key=lambda p: sum(alone_s[c] * v for c, v in p.visits.items()))
    return tuple(stage for stage, _ in slowest.stages)


def _to_the_reply(
    graph: LoadedGraph, own_s: Mapping[str, float]
) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Returns the longest chain from each stage to the reply, the stage itself last."""
    return _longest(
        [n for n in reversed(graph.stages) if graph.consumers[n]],
        own_s,
        {n: [c for c in graph.consumers[n] if c != REPLY] for n in graph.stages},
        ends={n for n in graph.stages if REPLY in graph.consumers[n]},
    )


def _longest(
    names: Iterable[str],
    own_s: Mapping[str, float],
    onward: Mapping[str, Iterable[str]],
    ends: Iterable[str] | None = None,
) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Returns the longest chain that ends with each stage: its seconds and its stages.

    Args:
        names: each after all that it may follow.
        own_s: by stage.
        onward: by stage, those that it may follow.
        ends: where a chain may begin; anywhere for None.
    """
    found: dict[str, tuple[float, tuple[str, ...]]] = {}
    for name in names:
        chains = [found[o] for o in onward[name] if o in found]
        if ends is None or name in ends:
            chains.append((0.0, ()))
        if chains:
            seconds, stages = max(chains)
            found[name] = seconds + own_s[name], (*stages, name)
    return found


def _path(graph: LoadedGraph, stages: tuple[str, ...]) -> Path:
    components = [graph.stages[s].stage.component for s in stages]
    visits = {c: components.count(c) for c in dict.fromkeys(components)}
    return Path(visits, stages=tuple(zip(stages, components, strict=True)))
