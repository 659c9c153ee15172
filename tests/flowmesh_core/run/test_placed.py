"""Why attempts went to their workers, in the ledger: once a batch, and of few batches of a step."""

from tests.flowmesh_core.run.world import MAP, World, dataset, plan, rows_of, step

from flowmesh_core.run.ledger import AttemptLine, decode_lines, encode_lines
from flowmesh_core.run.money import PLACEMENTS_TOLD


def attempts_of(world: World, uid: str) -> list[AttemptLine]:
    return [line for line in world.ended_runs[uid].lines if isinstance(line, AttemptLine)]


def test_an_attempts_line_says_which_workers_there_were() -> None:
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


def test_a_batch_is_told_once_and_a_step_with_many_batches_a_few_times() -> None:
    world = World()
    world.join("w1")
    rows = dataset(*(f"row {n}" for n in range(80)))
    uid = world.submit(plan(step("map", rows_of(rows), uses=MAP)), artifacts=[rows])
    world.run()
    lines = attempts_of(world, uid)
    assert len(lines) == 80
    told = [line for line in lines if line.placed]
    assert 1 < len(told) <= PLACEMENTS_TOLD
