"""The feasible workers of a group with what each is predicted to give, or the reason for none.

Hard constraints first (``constraints``), then what the worker holds: an open lane of the signature,
full or not, or room for a new one without evicting anything that holds work (``sites``).
"""

from dataclasses import dataclass

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import RejectionCause, Tier
from flowmesh_core.scheduler.accounts import WAIT
from flowmesh_core.scheduler.constraints import CHECKS, remedy
from flowmesh_core.scheduler.groups import Group
from flowmesh_core.scheduler.sites import Site, find_sites
from flowmesh_core.scheduler.tick import Tick
from flowmesh_core.scheduler.utility import NEARNESS, Prospect, Scale


@dataclass(slots=True, eq=False)
class Option:
    """Workers that are one to a group, and the prospect on any of them."""

    members: list[int]
    prospect: Prospect


@dataclass(slots=True, eq=False)
class Options:
    """The candidates of a group.

    Attributes:
        options: in order of their first member; empty where none is feasible now.
        scale: None where there are no options.
        cause: the reason for what is not placed; ``BUSY`` where a worker may become free.
        detail: a sentence for users.
        full: whether there are lanes to wait for, and no place to be had in this tick.
    """

    options: list[Option]
    scale: Scale | None
    cause: RejectionCause
    detail: str
    full: bool = False


class Candidates:
    """Finds the options of groups, sharing what groups have in common."""

    def __init__(self, tick: Tick) -> None:
        """Takes the tick; sites are found on its accounts as they are when a group is asked for."""
        self._tick = tick
        self._sites: dict[tuple[object, ...], list[Site]] = {}
        self._options: dict[tuple[object, ...], list[Option]] = {}

    def of(self, group: Group) -> Options:
        """The candidates of a group on the snapshot."""
        cause, detail = self._reason(group)
        if cause is not RejectionCause.BUSY:
            return Options([], None, cause, detail)
        options = self._options.get(group.cohort)
        if options is None:
            options = self._options[group.cohort] = self._find(group)
        if not options:
            return Options([], None, cause, detail)
        scale = Scale.over(group.weights, [o.prospect for o in options])
        full = all(o.prospect.first_tier >= WAIT for o in options)
        return Options(options, scale, cause, detail, full)

    def _find(self, group: Group) -> list[Option]:
        key = (
            group.info.signature,
            group.isolate,
            group.avoid,
            group.replica_of,
            group.work.component_bytes,
        )
        sites = self._sites.get(key)
        if sites is None:
            sites = self._sites[key] = find_sites(self._tick, group)
        large = group.large_bytes
        needed = sum(size for _, size in group.info.components) + large
        fetch_s = self._tick.model.fetch_s(large)
        return [Option(site.members, site.prospect(group, needed, fetch_s)) for site in sites]

    def _reason(self, group: Group) -> tuple[RejectionCause, str]:
        """``BUSY`` where any worker could take the group in time, else what the nearest lacks."""
        tick = self._tick
        unmet = tick.unmet(group.info)
        able = sum(len(tick.kinds[k]) for k, cause in enumerate(unmet) if cause is None)
        if able:
            return RejectionCause.BUSY, _busy(able)
        if not tick.shapes:
            text = "no worker is connected; start one or raise a pool's maximum"
            return RejectionCause.NO_WORKERS, text
        if any(cause is None for cause in unmet):
            text = "every worker that can run it is draining; it is placed when another joins"
            return RejectionCause.DRAINING, text
        worst = max((c for c in unmet if c is not None), key=CHECKS.index)
        return worst, remedy(group.info.requirement, worst, tick.shapes)


def _busy(able: int) -> str:
    full = (
        "the worker that can run it is" if able == 1 else f"the {able} workers that can run it are"
    )
    return f"{full} full, or soon better than an idle one"


def with_inputs(tick: Tick, option: Option, action: ReadyAction, member: int) -> Prospect:
    """The prospect on a worker that may hold inputs of this very action."""
    held = tick.holders(action).get(member)
    if held is None:
        return option.prospect
    near = sum(NEARNESS[tier] * size for tier, size in held)
    here = sum(size for tier, size in held if tier not in {Tier.ZONE, Tier.FAR})
    return option.prospect.nearer(near, tick.model.fetch_s(here))
