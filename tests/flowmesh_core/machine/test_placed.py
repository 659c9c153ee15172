"""Placements in the ledger: one per batch, and those of a few batches of a step."""

import pytest
from tests.flowmesh_core.machine.world import MAP, World, dataset, plan, rows_of, step

from flowmesh_api.v1.why import AttemptLine
from flowmesh_core.accounting.ledger_lines import decode_lines, encode_lines
from flowmesh_core.machine.billing import PLACEMENTS_EXPLAINED
from flowmesh_core.placement.capacity import instance_capacity
from flowmesh_core.protocol.messages import EngineInstanceState
from flowmesh_core.units import Digest


def attempts_of(world: World, uid: str) -> list[AttemptLine]:
    return [line for line in world.ended_runs[uid].lines if isinstance(line, AttemptLine)]


def test_an_attempts_line_lists_the_candidate_workers() -> None:
    world = World()
    world.join("cheap", price_nanousd_per_hour=10**9)
    world.join("dear", price_nanousd_per_hour=9 * 10**9)
    uid = world.submit(plan(step("a")))
    world.run()
    (line,) = attempts_of(world, uid)
    assert [one.worker for one in line.placed] == ["cheap", "dear"]
    assert line.placed[0].worker == line.worker
    assert line.placed[0].utility > line.placed[1].utility
    assert decode_lines(encode_lines([line])) == [line]


def test_a_placement_is_recorded_once_per_batch_and_a_few_times_for_many_batches() -> None:
    world = World()
    world.join("w1")
    rows = dataset(*(f"row {n}" for n in range(80)))
    uid = world.submit(plan(step("map", rows_of(rows), uses=MAP)), artifacts=[rows])
    world.run()
    lines = attempts_of(world, uid)
    assert len(lines) == 80
    told = [line for line in lines if line.placed]
    assert 1 < len(told) <= PLACEMENTS_EXPLAINED


def test_a_loading_instance_is_seen_as_loading_with_its_contracts_capacity() -> None:
    world = World()
    world.join("w1")
    world.submit(plan(step("a")))
    world.tick(0.1)
    (attempt,) = world.attempts()
    held = world.machine.state.attempts[attempt.attempt_id]
    assert held.starts_s > world.now, "a host has to start first"
    for state, loads in (("starting", True), ("loading", True), ("ready", False)):
        lane = EngineInstanceState(attempt.signature, attempt.engine, state, 1, attempt.memory_mib)
        world._sync("w1", instances=(lane,))
        (worker,) = world.machine.snapshot(world.now).workers
        seen = worker.instances[Digest(attempt.signature)]
        assert (seen.load_remaining_s > 0.0) == loads, state
        assert seen.remaining_s >= seen.load_remaining_s
        info = world.machine.state.signatures[Digest(attempt.signature)]
        known = instance_capacity(info, seen, "cpu")
        assert known == (info.capacity if loads else 1), "while it loads it can only say 1"


def test_an_attempts_predicted_end_counts_from_its_actual_start() -> None:
    world = World()
    world.join("w1")
    world.submit(plan(step("a")))
    world.tick(0.1)
    (assigned,) = world.attempts()
    attempt = world.machine.state.attempts[assigned.attempt_id]
    attempt.starts_s = world.now + 500.0  # as if it was sent ahead, behind many others
    world.begin(attempt.attempt_id)
    (worker,) = world.machine.snapshot(world.now).workers
    (seen,) = worker.instances.values()
    assert seen.remaining_s == pytest.approx(attempt.predicted_s)
