"""Random workflows, tenants and faults: whatever happens, no run is lost and money adds up."""

import random

import pytest
from tests.flowmesh_core.fleet.contents import contents
from tests.flowmesh_core.machine.world import MAP, SOLO, World, after, dataset, plan, rows_of, step

from flowmesh_core.accounting.ledger_lines import EXECUTED_OUTCOMES
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.fleet.snapshot import Tier
from flowmesh_core.graph.plan import Plan, StepPlan
from flowmesh_core.machine import checkpoints, ready_actions
from flowmesh_core.machine.events import Amended, CancelRequested
from flowmesh_core.protocol.results import Artifact

FAULTS = ("engine", "host-crashed", "preempted", "drained", "out-of-memory", "bad-input")
SEEDS = range(100)


def random_plan(rng: random.Random) -> tuple[Plan, list[Artifact]]:
    steps: list[StepPlan] = []
    rows = dataset(*(f"text {n}" for n in range(rng.randrange(0, 5))))
    for n in range(rng.randrange(1, 7)):
        path = f"s{n}"
        kind = rng.choice(("noop", "solo", "map", "stream"))
        maps = [s.path for s in steps if s.engine == MAP.name]
        if kind == "map":
            steps.append(step(path, rows_of(rows), uses=MAP, value=rng.randrange(2)))
        elif kind == "stream" and maps:
            source = rng.choice(maps)
            steps.append(step(path, rows_of(source), uses=MAP, value=rng.randrange(2)))
        else:
            before = rng.sample([s.path for s in steps], k=min(len(steps), rng.randrange(3)))
            uses = SOLO if kind == "solo" else None
            edges = after(*before, required=rng.random() < 0.7)
            extra = {"uses": uses} if uses else {}
            steps.append(step(path, *edges, value=rng.randrange(3), **extra))
    namespace = rng.choice(("team-a", "team-b", "team-c"))
    return plan(*steps, namespace=namespace), [rows]


def fault(world: World, rng: random.Random, uids: list[str]) -> None:  # noqa: C901, PLR0912 - one case a fault
    attempts = world.attempts()
    workers = list(world.machine.state.workers)
    match rng.randrange(15):
        case 0:
            made, artifacts = random_plan(rng)
            share = rng.choice(("", "group-x"))
            uids.append(world.submit(made, f"r{len(uids)}", share=share, artifacts=artifacts))
        case 1 if len(workers) < 4:
            world.join(f"w{rng.randrange(1000)}")
        case 2 if workers and rng.random() < 0.3:
            world.lose(rng.choice(workers))
        case 3 if attempts and rng.random() < 0.4:
            world.fail(rng.choice(attempts).attempt_id, rng.choice(FAULTS))
        case 4 if uids and rng.random() < 0.2:
            world.apply(CancelRequested(rng.choice(uids)))
        case 5 if attempts:
            chosen = rng.choice(attempts)
            blobs = [b for r in chosen.inputs.values() for b in r.artifact.blobs()]
            if blobs:
                lost = rng.choice(blobs)
                world.lost_blobs.add(lost)
                world.fail(chosen.attempt_id, "missing-blob", detail=lost)
        case 6 if attempts:
            world.begin(rng.choice(attempts).attempt_id, units=rng.randrange(5))
        case 7 if workers:
            name = rng.choice(workers)
            if rng.random() < 0.3:
                world.held.pop(name, None)  # the assignments were lost with the connection
            world.hello(name)
        case 8:
            world.mute_store = True
        case 9:
            world.answer()
        case 10 if attempts:
            world.checkpoint(rng.choice(attempts).attempt_id, float(rng.randrange(1, 9)))
        case 11 if any(a.resume for a in attempts):
            chosen = rng.choice([a for a in attempts if a.resume])
            assert chosen.resume is not None
            spoiled = chosen.resume.artifact.digest
            world.checkpoint(chosen.attempt_id, 0.0, spoiled, digest=spoiled)
        case 12 if workers:
            world.deaf ^= {rng.choice(workers)}  # it hears of no cancels, or does again
        case 13 if uids and rng.random() < 0.3:
            changes = {"priority": rng.randrange(3), "suspend": rng.random() < 0.3}
            world.apply(Amended(rng.choice(uids), changes))
        case _:
            if attempts:
                world.finish(rng.choice(attempts).attempt_id)
    world.tick(rng.random())
    world.beat()


def check_fleet(world: World) -> None:
    """No device is over-committed: lanes that hold work fit, and hold no more than they take."""
    snapshot = world.machine.snapshot(world.now)
    for view in snapshot.workers:
        assert view.free_memory_mib >= 0
        for lane in view.instances.values():
            assert lane.assigned <= max(lane.capacity * 2, 1)
        assert all(isinstance(t, Tier) for t in view.local.values())
    world.machine.state.dirty = True


def check_index(world: World) -> None:
    """The index that is kept from tick to tick shows what one that is made anew would show."""
    state = world.machine.state
    kept = world.machine.snapshot(world.now).ready
    shown = [
        ready_actions.view(state, action)
        for action in state.ready.values()
        if any(not state.runs[s.uid].suspended for s in action.subscribers)
    ]
    assert contents(kept) == contents(ReadyIndex([*shown, *state.replicas], world.now))


def executions_agree(world: World) -> None:
    """Statuses, ledgers and the fabric's account count the same executions."""
    by_ledger = {
        uid: sum(getattr(line, "outcome", "") in EXECUTED_OUTCOMES for line in lines)
        for uid, lines in world.ledger.items()
    }
    for uid, final in world.finals.items():
        assert final.executed == by_ledger.get(uid, 0), uid
    assert world.machine.state.book.executed == sum(by_ledger.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_every_run_ends_and_the_money_adds_up_under_random_faults(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    uids: list[str] = []
    made, artifacts = random_plan(rng)
    uids.append(world.submit(made, "r0", artifacts=artifacts))
    for _ in range(80):
        fault(world, rng, uids)
        check_fleet(world)
        check_index(world)
    for uid in uids:
        world.apply(Amended(uid, {"suspend": False}))
    world.answer()
    world.join("last", device_memory_mib=1 << 20)
    world.run(rounds=600)
    assert set(world.finals) == set(uids), world.story()
    book = world.machine.state.book
    assert book.unsettled_nanousd == 0
    assert book.bill_nanousd == book.receipts_nanousd + book.fabric_nanousd
    paid = sum(f.paid_nanousd for f in world.finals.values())
    assert paid == book.receipts_nanousd
    executions_agree(world)
    assert checkpoints.roots(world.machine.state) == [], "garbage when everything is done"
    assert not world.machine.state.unnoted
    for uid, run in world.ended_runs.items():
        for path, step_run in run.steps.items():
            assert step_run.ended, f"{uid} {path}"
