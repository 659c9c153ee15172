"""The free slots that a cycle remembers are those that it would find by examining all anew."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flowmesh_core.placement.builders import NOW_S, action, lane, signature, snapshot, worker
from tests.flowmesh_core.placement.instances import random_snapshot

from flowmesh_core.costmodel import CostModel
from flowmesh_core.placement import input_locality
from flowmesh_core.placement.action_groups import groups_of
from flowmesh_core.placement.candidates import CandidateFinder
from flowmesh_core.placement.capacity import RUN, WAIT
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.free_slots import NOWHERE
from flowmesh_core.placement.reservations import reserve_worker
from flowmesh_core.placement.slot_picker import SlotPicker

SEEDS = st.integers(0, 10**6)


class World:
    """A random tick with the groups that have sites; in every other one all workers are alike."""

    def __init__(self, seed, workers=12, signatures=3):
        self.rng = random.Random(seed)
        self.view = random_snapshot(seed, 60, workers, signatures)
        if seed % 2:
            idle = [worker(w.name, memory_mib=6000) for w in self.view.workers]
            self.view = replace(self.view, workers=idle)
        self.tick = SchedulingCycle(self.view, CostModel())
        self.candidates = CandidateFinder(self.tick)
        groups = [(group, self.candidates.free_slots(group)) for group in groups_of(self.view)]
        self.groups = [(group, outlook) for group, outlook in groups if outlook.sites]

    def prospects(self, group, outlook):
        found = self.candidates.estimates(group, outlook)
        assert found is not None
        return found

    def seeker(self, group, outlook):
        return SlotPicker(self.tick, group, outlook, self.prospects(group, outlook))

    def fill(self, places):
        """Gives so many places to random groups; says what was given."""
        taken = []
        for _ in range(places if self.groups else 0):
            group, outlook = self.rng.choice(self.groups)
            outlook.refresh()
            here = [m for m, t in zip(outlook.members, outlook.tiers, strict=True) if t < WAIT]
            if here:
                member = self.rng.choice(here)
                self.tick.take(group, next(iter(group.ready)), member)
                taken.append((group, member))
        return taken


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(0, 60))
def test_refreshed_candidates_equal_the_actual_free_slots(seed, places):
    world = World(seed)
    world.fill(places)
    for _, outlook in world.groups:
        outlook.refresh()
        for site, tier, member in zip(outlook.sites, outlook.tiers, outlook.members, strict=True):
            there = [NOWHERE if (t := outlook.tier_of(m)) is None else t for m in site.members]
            assert tier == min(there)
            if tier != NOWHERE:
                assert member == site.members[there.index(tier)]
        assert outlook.best_tier == min(outlook.tiers)


def test_a_claim_updates_the_cached_candidates():
    fed, other = signature("f", memory_mib=5000, capacity=4), signature("o", memory_mib=5000)
    waits = action("o1", other, ready_s=NOW_S - 1000.0)
    lanes = [lane(fed, assigned=1, remaining_s=1.0)]
    view = snapshot([worker("w", *lanes)], [action("f1", fed), waits], [fed, other])
    tick = SchedulingCycle(view, CostModel())
    groups = {group.info.signature: group for group in groups_of(view)}
    outlook = CandidateFinder(tick).free_slots(groups[fed.signature])
    assert outlook.best_tier == RUN
    reserve_worker(tick, groups[other.signature], waits)
    outlook.refresh()
    assert outlook.tiers == [NOWHERE]


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_utilities_computed_together_equal_single_ones_bit_for_bit(seed):
    world = World(seed)
    for group, outlook in world.groups:
        seeker = world.seeker(group, outlook)
        single = [seeker.scale.utility(p, p.first_tier) for p in seeker.estimates]
        assert seeker.utilities == single


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(0, 60))
def test_a_repeated_search_finds_the_best_of_the_remaining_slots(seed, places):
    world = World(seed)
    seekers = [(world.seeker(*one), one[1]) for one in world.groups]
    taken = world.fill(places)
    for seeker, outlook in seekers:
        outlook.refresh()
        seeker.best()
    for group, member in world.rng.sample(taken, len(taken) // 2):
        world.tick.accounts[member].give_back(group.info)
    for seeker, outlook in seekers:
        outlook.reset()
        seeker.reset()
        left = [
            (seeker.scale.utility(prospect, tier), -number)
            for number, (prospect, tier) in enumerate(
                zip(seeker.estimates, outlook.tiers, strict=True)
            )
            if tier != NOWHERE
        ]
        best = seeker.best()
        if best is None:
            assert not left
        else:
            number = -max(left)[1]
            assert (best.member, best.tier) == (outlook.members[number], outlook.tiers[number])


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(0, 60), st.integers(1, 9))
def test_actions_that_prefer_to_wait_are_counted_only_up_to_the_limit(seed, places, enough):
    world = World(seed)
    world.fill(places)
    for group, outlook in world.groups:
        seekers = [world.seeker(group, outlook) for _ in range(2)]
        for seeker in seekers:
            outlook.refresh()
            seeker.best()
        all_of_them = seekers[0].count_preferring_to_wait(float("inf"))
        some = seekers[1].count_preferring_to_wait(enough)
        assert some == all_of_them or enough <= some < all_of_them


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_the_input_locality_of_many_workers_equals_that_of_each_worker(seed):
    world = World(seed, workers=30)
    every = {number: number for number in range(len(world.view.workers))}
    few, many = (input_locality.InputLocality(world.view) for _ in range(2))
    assert len(every) <= input_locality.LOCALITY_BY_WORKER_MAX
    for one in world.view.ready:
        asked = list(few.among(one, every))
        looked_up = list(many.among(one, {**every, **dict.fromkeys(range(1000, 1100), 0)}))
        assert asked == looked_up
        assert asked == [m for m in every if few.local_inputs(one, m)]
