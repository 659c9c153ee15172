"""The workers that a batch could have gone to instead, for the ledger.

Worked out once a tick for all batches of a group, from what its seeker knows anyway: a decision
must not wait for what only people read later.
"""

from flowmesh_core.fleet.snapshot import ScoredWorker, UtilityTerms
from flowmesh_core.scheduler.candidates import Option
from flowmesh_core.scheduler.seeker import Place, Seeker

OTHERS = 4


def candidates(seeker: Seeker, place: Place, terms: UtilityTerms) -> tuple[ScoredWorker, ...]:
    """The worker of a place with its terms, then the best others: one of each kind."""
    found = [_scored(seeker, place.member, terms, lane=place.prospect.lane)]
    for option, scored in _best(seeker):
        if option.members[0] != place.member:
            found.append(scored)
        elif len(option.members) > 1:
            found.append(_of(seeker, option, option.members[1]))
    return tuple(found[: OTHERS + 1])


def _best(seeker: Seeker) -> list[tuple[Option, ScoredWorker]]:
    if seeker.ranked is None:
        numbers = [int(entry[1]) for entry in sorted(seeker.heads)[: OTHERS + 1]]
        chosen = [seeker.options[number] for number in numbers]
        seeker.ranked = [(option, _of(seeker, option, option.members[0])) for option in chosen]
    return seeker.ranked


def _of(seeker: Seeker, option: Option, member: int) -> ScoredWorker:
    prospect = option.prospect
    terms = seeker.scale.terms(prospect, prospect.first_tier)
    return _scored(seeker, member, terms, lane=prospect.lane)


def _scored(seeker: Seeker, member: int, terms: UtilityTerms, *, lane: bool) -> ScoredWorker:
    return ScoredWorker(
        seeker.tick.snapshot.workers[member].name,
        terms.utility,
        terms.throughput,
        terms.cost,
        terms.locality,
        terms.start_s,
        terms.finish_s,
        terms.nanousd,
        lane,
    )
