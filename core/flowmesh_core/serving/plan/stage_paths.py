"""The paths of a request through the stages of a service, for the split of its latency target."""

from collections.abc import Iterable, Mapping

from flowmesh_core.serving.plan.latency_split import Path
from flowmesh_core.stages.service_graph import REPLY, LoadedGraph


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
    after = _longest(
        [n for n in reversed(names) if graph.consumers[n]],
        own_s,
        {n: [c for c in graph.consumers[n] if c != REPLY] for n in names},
        ends={n for n in names if REPLY in graph.consumers[n]},
    )
    found = {(*before[n][1], *reversed(after[n][1][:-1])): n for n in names if n in after}
    return tuple(_path(graph, stages) for stages in found)


def chain_of(graph: LoadedGraph, alone_s: Mapping[str, float]) -> tuple[str, ...]:
    """Returns the stages of the slowest path of all, in order."""
    paths = slowest_paths(graph, alone_s)
    slowest = max(paths, key=lambda p: sum(alone_s[c] * v for c, v in p.visits.items()))
    return tuple(stage for stage, _ in slowest.stages)


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
