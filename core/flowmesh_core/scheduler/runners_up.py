"""The workers that a batch could have gone to instead, for the ledger.

Worked out once a tick for all batches of a group: a decision must not wait for what only people
read later.
"""

from heapq import nlargest

from flowmesh_core.fleet.snapshot import ScoredWorker, UtilityTerms
from flowmesh_core.scheduler.candidates import Option
from flowmesh_core.scheduler.seeker import Place, Seeker

OTHERS = 4
_DIGITS = 4


def candidates(seeker: Seeker, place: Place) -> tuple[ScoredWorker, ...]:
    """The worker of a place, then the best others: one of each kind that is alike."""
    terms = seeker.scale.terms(place.prospect, place.tier)
    found = [_scored(seeker, place.member, terms, lane=place.prospect.lane)]
    for option, scored in _best(seeker):
        if option.members[0] != place.member:
            found.append(scored)
        elif len(option.members) > 1:
            found.append(_of(seeker, option, option.members[1]))
        if len(found) > OTHERS:
            break
    return tuple(found)


def _best(seeker: Seeker) -> list[tuple[Option, ScoredWorker]]:
    if seeker.ranked is None:
        prospects = [option.prospect for option in seeker.options]
        utilities = seeker.scale.utilities(prospects)
        numbers = nlargest(OTHERS + 1, range(len(utilities)), key=utilities.__getitem__)
        chosen = [seeker.options[n] for n in numbers]
        seeker.ranked = [(option, _of(seeker, option, option.members[0])) for option in chosen]
    return seeker.ranked


def _of(seeker: Seeker, option: Option, member: int) -> ScoredWorker:
    prospect = option.prospect
    terms = seeker.scale.terms(prospect, prospect.first_tier)
    return _scored(seeker, member, terms, lane=prospect.lane)


def _scored(seeker: Seeker, member: int, terms: UtilityTerms, *, lane: bool) -> ScoredWorker:
    return ScoredWorker(
        worker=seeker.tick.snapshot.workers[member].name,
        utility=round(terms.utility, _DIGITS),
        throughput=round(terms.throughput, _DIGITS),
        cost=round(terms.cost, _DIGITS),
        locality=round(terms.locality, _DIGITS),
        start_s=round(terms.start_s, _DIGITS),
        finish_s=round(terms.finish_s, _DIGITS),
        nanousd=terms.nanousd,
        lane=lane,
    )
