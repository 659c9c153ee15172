"""Explains a placement: every feasible worker with its terms, for ``fmesh explain``."""

from dataclasses import replace

from msgspec import structs

from flowmesh_api.v1.why import Candidate
from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.fleet.snapshot import Snapshot
from flowmesh_core.placement.action_groups import group_of, groups_of
from flowmesh_core.placement.bound_reservations import reserve_in_bounds
from flowmesh_core.placement.candidates import CandidateFinder, with_inputs
from flowmesh_core.placement.cycle import SchedulingCycle


def candidates_of(action: ReadyAction, snapshot: Snapshot, model: CostModel) -> list[Candidate]:
    """Returns the feasible workers of an action on a snapshot, best first, ties by name.

    A worker whose instance is full counts as a candidate to wait for: its terms say when the action
    would start. The terms are the ones that ``decide`` uses on the same snapshot. An action that is
    not ready, in backoff or not, is scored as if it were.
    """
    now = structs.replace(action, not_before_s=0.0)
    others = [one for one in snapshot.ready if one.action_id != action.action_id]
    view = replace(snapshot, ready=ReadyIndex([*others, now], snapshot.now_s))
    tick = SchedulingCycle(view, model)
    reserve_in_bounds(tick, groups_of(view))
    group = group_of(view, action.kind)
    candidates = CandidateFinder(tick)
    free_slots = candidates.free_slots(group)
    estimates = candidates.estimates(group, free_slots)
    if estimates is None:
        return []
    scale = estimates.scale(group.weights)
    ranked: list[tuple[float, int, Candidate]] = []
    for site, known in zip(free_slots.sites, estimates.all, strict=True):
        for member in site.members:
            estimate = with_inputs(tick, known, action, member)
            terms = scale.terms(estimate, estimate.first_tier)
            name = snapshot.workers[member].name
            ranked.append((-terms.utility, member, Candidate(name, terms, estimate.has_instance)))
    return [candidate for _, _, candidate in sorted(ranked, key=_rank)]


def _rank(item: tuple[float, int, Candidate]) -> tuple[float, int]:
    return item[0], item[1]
