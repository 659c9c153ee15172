"""Fault 4: of the actions that ran in a host that crashed, the guilty one is found by halving."""

from collections import defaultdict
from dataclasses import dataclass, field
from math import ceil, log2

import pytest
from tests.flowmesh_core.machine.world import MANY, World, plan, step

from flowmesh_core.graph.plan import Resources
from flowmesh_core.machine.model import Attempt
from flowmesh_core.protocol.messages import Assignment

ACTIONS = 240


@dataclass
class Hosts:
    """Workers whose hosts crash where an action of a guilty step runs, with all that is in them."""

    world: World
    guilty: set[str]
    started: int = 0
    crashed: list[int] = field(default_factory=list)

    def attempt(self, assignment: Assignment) -> Attempt:
        return self.world.machine.state.attempts[assignment.attempt_id]

    def step_of(self, assignment: Assignment) -> str:
        return next(iter(self.attempt(assignment).action.subscribers)).path

    def open(self) -> list[list[Assignment]]:
        """What runs, by host."""
        found: dict[tuple[str, str], list[Assignment]] = defaultdict(list)
        for worker, held in self.world.held.items():
            for a in held.values():
                found[worker, a.attempt_id if a.isolate else a.signature].append(a)
        return list(found.values())

    def round(self) -> None:
        """Every host begins all that it has, and then ends it or crashes."""
        self.world.tick(1.0)
        self.world.beat()
        for together in self.open():
            self.started += 1
            self.work(together)

    def work(self, together: list[Assignment]) -> None:
        for a in together:
            self.world.begin(a.attempt_id)
        self.world.now += 1.0
        if self.guilty.isdisjoint(map(self.step_of, together)):
            for a in together:
                self.world.finish(a.attempt_id)
            return
        self.crashed.append(len(together))
        for a in together:
            if a.attempt_id in self.world.machine.state.attempts:
                self.world.fail(a.attempt_id, "host-crashed")

    def until_ended(self, *uids: str) -> None:
        for _ in range(100):
            if set(uids) <= set(self.world.finals):
                return
            self.round()
        raise AssertionError(self.world.story())


def submit_each(world: World, count: int = ACTIONS) -> list[str]:
    """Submits runs of one action each, named s0, s1 and so on."""
    return [world.submit(plan(step(f"s{n}", uses=MANY, value=n)), f"run-{n}") for n in range(count)]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("guilty", [0, 101, ACTIONS - 1])
def test_fault_4_the_guilty_action_is_found_in_twice_the_logarithm_of_hosts(
    guilty: int, workers: int, world: World
) -> None:
    world.join("w0")
    uids = submit_each(world)
    hosts = Hosts(world, {f"s{guilty}"})
    hosts.round()
    assert hosts.crashed == [ACTIONS]
    world.join(*(f"w{n}" for n in range(1, workers)))
    hosts.until_ended(*uids)
    assert hosts.started - 1 <= 2 * ceil(log2(ACTIONS))
    assert [uid for uid in uids if world.finals[uid].phase != "Succeeded"] == [f"run-{guilty}"]
    assert world.finals[f"run-{guilty}"].reason == "poison"
    assert not world.machine.state.suspects
    assert len(world.machine.state.signatures) == 1


def test_fault_4_the_fabric_pays_for_suspects_until_the_guilty_action_is_found(
    world: World,
) -> None:
    world.join("w0")
    uids = submit_each(world, 8)
    hosts = Hosts(world, {"s7"})
    hosts.until_ended(*uids)
    ended = list(world.finals)
    before, after = ended[: ended.index("run-7")], ended[ended.index("run-7") + 1 :]
    assert before
    assert after
    assert {world.finals[uid].paid_nanousd for uid in (*before, "run-7")} == {0}
    assert sum(world.finals[uid].paid_nanousd for uid in after) > 0
    book = world.machine.state.book
    assert book.fabric_nanousd + book.receipts_nanousd == book.bill_nanousd


def test_suspects_are_cleared_once_the_guilty_action_is_found(world: World) -> None:
    world.join("w0")
    uids = submit_each(world, 4)
    hosts = Hosts(world, {"s0"})
    hosts.round()
    world.join(*(f"w{n}" for n in range(1, 5)))
    for _ in range(8):
        world.tick(1.0)
        world.beat()
        # The guilty one's host alone works; the hosts of the others are slow.
        for together in hosts.open():
            if "s0" in map(hosts.step_of, together):
                hosts.work(together)
    assert world.finals["run-0"].reason == "poison"
    assert not world.machine.state.suspects
    hosts.until_ended(*uids)
    assert [world.finals[uid].phase for uid in uids[1:]] == ["Succeeded"] * 3


def test_a_host_that_crashes_by_chance_fails_none_of_its_actions(world: World) -> None:
    world.join("w0")
    uids = submit_each(world, 9)
    hosts = Hosts(world, {"s0"})
    hosts.round()
    hosts.guilty.clear()
    hosts.until_ended(*uids)
    assert {world.finals[uid].phase for uid in uids} == {"Succeeded"}
    assert hosts.started == 3
    assert not world.machine.state.suspects


def test_two_guilty_actions_are_found_and_no_other_action_fails(world: World) -> None:
    world.join("w0", "w1")
    uids = submit_each(world, 32)
    hosts = Hosts(world, {"s3", "s29"})
    hosts.until_ended(*uids)
    failed = {uid for uid in uids if world.finals[uid].phase == "Failed"}
    assert failed == {"run-3", "run-29"}


def test_an_engine_that_cannot_load_is_poison_for_all_after_three_loads(world: World) -> None:
    world.join("w0")
    uids = submit_each(world, 6)
    loads = 0
    while set(uids) - set(world.finals):
        world.tick(1.0)
        world.beat()
        loads += 1
        for a in world.attempts():
            world.loads(a.attempt_id)
        for a in world.attempts():
            world.fail(a.attempt_id, "host-crashed")
    assert loads == 3
    assert {world.finals[uid].reason for uid in uids} == {"poison"}


def test_a_suspect_whose_requirement_changes_runs_alone(world: World) -> None:
    world.join("w0")
    large, small = (Resources(memory_mib=mib) for mib in (1024, 512))
    for n in range(4):
        one = step(f"s{n}", uses=MANY, value=n, resources=large)
        world.submit(plan(one), f"run-{n}", share="group-x")
    hosts = Hosts(world, {"s0"})
    hosts.round()
    state = world.machine.state
    action = next(a for a in state.actions.values() if next(iter(a.subscribers)).path == "s2")
    assert action.shown.suspects_of == action.info.signature
    joined = plan(step("s2", uses=MANY, value=2, resources=small), namespace="team-b")
    world.submit(joined, "joined", share="group-x")
    assert action.isolate
    assert action.shown.requirement.memory_mib == 512
    hosts.until_ended("run-0", "run-1", "run-2", "run-3", "joined")
    assert not state.suspects


def test_actions_on_a_second_lost_worker_are_halved_too(world: World) -> None:
    world.join("w0")
    uids = submit_each(world, 8)
    for n in range(2):
        world.tick(1.0)
        for a in world.attempts():
            world.begin(a.attempt_id)
        world.lose(f"w{n}")
        world.join(f"w{n + 1}")
    world.tick(1.0)
    world.beat()
    assert len(world.attempts()) == 4, "one half at a time has the worker"
    Hosts(world, set()).until_ended(*uids)
    assert {world.finals[uid].phase for uid in uids} == {"Succeeded"}
