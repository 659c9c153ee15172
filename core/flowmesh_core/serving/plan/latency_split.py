"""Splits a service's latency target among its components.

Each path through the service gets the target less its hand-offs, and shares it among its components
in proportion to what they take alone. A component on several paths gets its least share, so that
every path keeps the target; the tightest path uses all of it.
Source: NeuStream (Yuan et al.), section on partial SLOs.
"""

from collections.abc import Mapping, Sequence

import msgspec


class Path(msgspec.Struct, frozen=True):
    """One chain of stages through a service, from its request to its reply.

    Attributes:
        visits: how often the chain calls each component; at least 1 each.
        handoffs_s: what passing data between its stages takes, at the 95th percentile.
        stages: each with its component, to name them in problems; empty to name components.
    """

    visits: Mapping[str, int]
    handoffs_s: float = 0.0
    stages: tuple[tuple[str, str], ...] = ()


class Variant(msgspec.Struct, frozen=True):
    """What some of the requests do: all paths of it, since parallel branches are a path each.

    Attributes:
        probability: the share of requests that do it.
    """

    paths: tuple[Path, ...]
    probability: float = 1.0


class LatencySplit(msgspec.Struct, frozen=True):
    """The parts of a latency target.

    Attributes:
        target_s: by component, for one visit.
        problems: why the target cannot be kept, one text a path or component; empty if it can be.
    """

    target_s: Mapping[str, float]
    problems: tuple[str, ...]


def split_latency(
    latency_s: float,
    variants: Sequence[Variant],
    alone_s: Mapping[str, float],
    fixed_s: Mapping[str, float] | None = None,
    covered: float = 0.95,
) -> LatencySplit:
    """Splits a latency target.

    Args:
        latency_s: from a request's arrival to its reply.
        variants: the ways through the service; one where all requests do the same.
        alone_s: by component, the time of a batch of one.
        fixed_s: targets that the service gives itself, by component.
        covered: the share of requests that the target is for. The likeliest variants that make it
            up are split; a component in none of them gets its time alone.
    """
    fixed_s = fixed_s or {}
    target_s: dict[str, float] = {}
    problems = []
    for path in (p for v in _likeliest(variants, covered) for p in v.paths):
        given_s = path.handoffs_s + sum(fixed_s.get(c, 0.0) * v for c, v in path.visits.items())
        free = {c: v for c, v in path.visits.items() if c not in fixed_s}
        needed_s = sum(alone_s[c] * v for c, v in free.items())
        if given_s + needed_s > latency_s:
            problems.append(_too_slow(path, latency_s, given_s + needed_s, alone_s))
        for component in free:
            share_s = (latency_s - given_s) * alone_s[component] / needed_s
            target_s[component] = min(share_s, target_s.get(component, share_s))
    for component, seconds in fixed_s.items():
        if seconds < alone_s[component]:
            problems.append(
                f"{component} has a target of {seconds * 1e3:.0f} ms and takes "
                f"{alone_s[component] * 1e3:.0f} ms alone"
            )
    everywhere = {c for v in variants for path in v.paths for c in path.visits}
    rare = {c: alone_s[c] for c in everywhere - target_s.keys()}
    return LatencySplit({**rare, **target_s, **fixed_s}, tuple(problems))


def _likeliest(variants: Sequence[Variant], covered: float) -> list[Variant]:
    """Returns the fewest variants that together have this share of all requests."""
    kept: list[Variant] = []
    missing = covered * sum(v.probability for v in variants)
    for variant in sorted(variants, key=lambda v: -v.probability):
        if missing <= 0:
            break
        kept.append(variant)
        missing -= variant.probability
    return kept


def _too_slow(path: Path, latency_s: float, least_s: float, alone_s: Mapping[str, float]) -> str:
    if path.stages:
        names = [name for name, _ in path.stages]
        name, component = max(path.stages, key=lambda s: alone_s[s[1]])
        slowest, slowest_s = f"stage {name}", alone_s[component]
        if component != name:
            slowest += f" (component {component})"
    else:
        names = list(path.visits)
        slowest = max(path.visits, key=lambda c: alone_s[c] * path.visits[c])
        slowest_s = alone_s[slowest] * path.visits[slowest]
    return (
        f"{' -> '.join(names)} takes at least {least_s * 1e3:.0f} ms, the target is "
        f"{latency_s * 1e3:.0f} ms; {slowest} alone takes {slowest_s * 1e3:.0f} ms of it"
    )
