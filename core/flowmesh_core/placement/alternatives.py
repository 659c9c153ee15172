"""Lists the workers that a batch could have gone to instead, for the ledger.

The list is computed once per cycle and group, from data that the group's slot picker already has.
Only the first groups get one, because people read it later and a decision must not wait for it.
"""

from heapq import nlargest

from flowmesh_api.v1.why import ScoredWorker, UtilityTerms
from flowmesh_core.placement.settings import ALTERNATIVES_MAX, EXPLAINED_GROUPS_MAX
from flowmesh_core.placement.slot_picker import Slot, SlotPicker
from flowmesh_core.placement.utility import Estimate

_Ranked = list[tuple[list[int], Estimate, ScoredWorker]]
"""For each class: its members, its estimate, and its first member with a score."""


class Alternatives:
    """Finds the alternatives in one cycle."""

    def __init__(self) -> None:
        self._ranked: dict[SlotPicker, _Ranked] = {}

    def candidates(
        self, seeker: SlotPicker, place: Slot, terms: UtilityTerms
    ) -> tuple[ScoredWorker, ...]:
        """Returns the chosen worker with its terms, then the best other worker of each class."""
        chosen = _scored(seeker, place.member, terms, has_instance=place.estimate.has_instance)
        ranked = self._ranked.get(seeker)
        if ranked is None:
            if len(self._ranked) == EXPLAINED_GROUPS_MAX:
                return (chosen,)
            ranked = self._ranked[seeker] = _rank(seeker)
        found = [chosen]
        for members, estimate, scored in ranked:
            if members[0] != place.member:
                found.append(scored)
            elif len(members) > 1:
                found.append(_of(seeker, estimate, members[1]))
        return tuple(found[: ALTERNATIVES_MAX + 1])


def _rank(picker: SlotPicker) -> _Ranked:
    utilities = picker.utilities
    best = nlargest(ALTERNATIVES_MAX + 1, range(len(utilities)), key=utilities.__getitem__)
    chosen = [(picker.sites[number].members, picker.estimates[number]) for number in best]
    return [(members, p, _of(picker, p, members[0])) for members, p in chosen]


def _of(picker: SlotPicker, estimate: Estimate, member: int) -> ScoredWorker:
    terms = picker.scale.terms(estimate, estimate.first_tier)
    return _scored(picker, member, terms, has_instance=estimate.has_instance)


def _scored(
    picker: SlotPicker, member: int, terms: UtilityTerms, *, has_instance: bool
) -> ScoredWorker:
    return ScoredWorker(
        picker.tick.snapshot.workers[member].name,
        terms.utility,
        terms.throughput,
        terms.cost,
        terms.locality,
        terms.start_s,
        terms.finish_s,
        terms.nanousd,
        has_instance,
    )
