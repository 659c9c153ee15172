"""Law L2: no worker ends, claims or seizes an attempt that it was not given.

One hostile worker shows ids and tokens of all attempts that there ever were, changed ones and
invented ones, to the gateway's checks in front of the machine, across connections and leaders. No
published record names an attempt that its worker was not given, and no READY action leaves READY
but by an attempt of the worker's own. ``FLOWMESH_LAW_EXAMPLES=10000`` is for the night.
"""

import os
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from tests.flowmesh_control.given import given_attempts
from tests.flowmesh_core.machine import world as w

from flowmesh_api.v1.enums import ActionState
from flowmesh_control.workers.given_attempts import GivenAttempts
from flowmesh_control.workers.message_intake import MessageIntake
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine import commands as c
from flowmesh_core.machine import events as e
from flowmesh_core.machine.step_results import metrics_artifact
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    FailureReport,
    Hello,
    Sync,
)
from flowmesh_core.protocol.results import Usage
from flowmesh_core.units import Digest

EXAMPLES = int(os.environ.get("FLOWMESH_LAW_EXAMPLES", "200"))
HONEST, HOSTILE = ("honest-1", "honest-2"), "hostile"
WORKERS = (*HONEST, HOSTILE)


class World(w.World):
    """Workers speak through the gateway's checks; all that was ever assigned is remembered."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.connections = dict[str, GivenAttempts]()
        self.intakes = dict[str, MessageIntake]()
        self.assigned = dict[str, tuple[str, Assignment]]()

    def open(self, worker: str) -> None:
        self.incarnations.setdefault(worker, f"process of {worker}")
        given = given_attempts(worker, "default", self.incarnations[worker], lambda: self.now)
        self.connections[worker], self.intakes[worker] = given, MessageIntake(given)

    def _do(self, command: c.Command) -> None:
        match command:
            case c.Assign(worker, assignment):
                token = self.connections[worker].give(
                    assignment.attempt_id, command.generation, command.read_scopes
                )
                assignment = msgspec.structs.replace(assignment, token=token)
                self.assigned[assignment.attempt_id] = worker, assignment
                self.held.setdefault(worker, {})[assignment.attempt_id] = assignment
            case c.CancelAttempt(worker, attempt_id):
                self.held.get(worker, {}).pop(attempt_id, None)
            case c.Publish(_, result):
                made = result.provenance
                if made.attempt_id:
                    assert self.assigned[made.attempt_id][0] == made.worker
                super()._do(command)
            case _:
                super()._do(command)

    def says(self, worker: str, **changes: Any) -> int:
        """Hands a change over, and returns how much of it was dropped."""
        checked = self.intakes[worker].sync(Sync(seq=1, **changes))
        event = e.WorkerSynced(
            worker, self.incarnations[worker], checked.message, checked.generations
        )
        self.apply(event)
        return len(checked.dropped)

    def reconnects(self, worker: str, **changes: Any) -> int:
        """Opens another connection with a full state, and returns how much was dropped."""
        self.open(worker)
        hello = Hello(2, 0, self.incarnations[worker], self.now, w.shape(worker), **changes)
        checked = self.intakes[worker].hello(hello)
        self.apply(e.WorkerConnected(checked.message, checked.generations))
        return len(checked.dropped)


def end_of(attempt_id: str, token: str, value: str, failure: str = "") -> AttemptEnd:
    parts = (*attempt_id.split("/"), "", "")
    return AttemptEnd(
        attempt_id,
        Digest(parts[1]),
        outputs={} if failure else {"metrics": metrics_artifact({"value": value})},
        failure=FailureReport(failure, "it failed") if failure else None,
        usage=Usage(run_s=0.1),
        token=token,
    )


class Attempts(RuleBasedStateMachine):
    """Honest workers work, the hostile one says anything, and leaders change."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.plans = dict[str, Any]()
        self.unfinished = list[str]()
        for worker in WORKERS:
            self.world.reconnects(worker)
        for value in range(3):
            self.submits(value, 3)
        self.world.tick(0.5)

    @rule(value=st.integers(0, 5), attempts=st.integers(1, 3))
    def submits(self, value: int, attempts: int) -> None:
        uid = f"run-{len(self.plans)}"
        self.plans[uid] = w.plan(w.step("a", value=value, attempts=attempts))
        self.world.submit(self.plans[uid], uid)

    @rule(seconds=st.sampled_from((0.0, 0.3, 2.0)))
    def passes(self, seconds: float) -> None:
        self.world.tick(seconds)
        for worker in WORKERS:
            if worker in self.world.machine.state.workers:
                self.world.says(worker)

    @rule(data=st.data(), failure=st.sampled_from(("", "engine", "drained", "out-of-memory")))
    def ends(self, data: st.DataObject, failure: str) -> None:
        held = [a for n in HONEST for a in self.world.held.get(n, {}).values()]
        if not held:
            return
        one = data.draw(st.sampled_from(held))
        worker = self.world.assigned[one.attempt_id][0]
        del self.world.held[worker][one.attempt_id]
        if worker in self.world.machine.state.workers:
            end = end_of(one.attempt_id, one.token, "honest", failure)
            assert not self.world.says(worker, ended=(end,)), "of an honest worker"

    @rule(worker=st.sampled_from(HONEST))
    def comes_back(self, worker: str) -> None:
        held = tuple(
            AttemptProgress(a.attempt_id, "running", token=a.token)
            for a in self.world.held.get(worker, {}).values()
        )
        assert not self.world.reconnects(worker, attempts=held), "of an honest worker"

    @precondition(lambda self: self.plans)
    @rule()
    def another_leads(self) -> None:
        old = self.world
        unfinished = list(old.machine.state.runs)
        self.world = World(
            now=old.now + 1.0,
            epoch=old.epoch + 1,
            cache=old.cache,
            held=old.held,
            recovering_until_s=old.now + 3.0,
        )
        self.world.incarnations, self.world.assigned = old.incarnations, old.assigned
        self.world.generations = old.generations
        for worker in HONEST:
            self.world.open(worker)
        self.world.reconnects(HOSTILE)
        self.unfinished = list(dict.fromkeys([*unfinished, *self.unfinished]))

    @rule(lies=st.booleans(), data=st.data())
    def restores(self, lies: bool, data: st.DataObject) -> None:
        """The runs of the former leader are known again, maybe before all workers are."""
        if lies:
            self.lies(data, hello=True)
        unfinished, self.unfinished = self.unfinished, []
        for uid in unfinished:
            self.world.submit(self.plans[uid], uid)

    @rule(worker=st.sampled_from(HONEST))
    def is_lost(self, worker: str) -> None:
        """It is silent for too long; what it was given is ready again."""
        self.world.apply(e.WorkerLost(worker))

    @rule(data=st.data(), hello=st.booleans())
    def lies(self, data: st.DataObject, hello: bool) -> None:
        items = [self._lie(data) for _ in range(data.draw(st.integers(1, 3)))]
        state = self.world.machine.state
        ready = [k for k, a in state.actions.items() if a.state is ActionState.READY]
        done = dict(self.world.cache)
        ends = tuple(end_of(i, t, "forged", f) for i, t, f in items)
        claims = tuple(AttemptProgress(i, "running", token=t) for i, t, _ in items)
        trees = tuple(Checkpoint(i, Digest(digest_bytes(b"x")), 0.5, token=t) for i, t, _ in items)
        if hello:
            chosen = data.draw(st.sampled_from(({"attempts": claims}, {"ended": ends})))
            self.world.reconnects(HOSTILE, **chosen, checkpoints=trees)
        elif HOSTILE in state.workers:
            self.world.says(HOSTILE, progress=claims, ended=ends, checkpoints=trees)
        own = {k for k, (worker, _) in self.world.assigned.items() if worker == HOSTILE}
        for key in ready:
            action = state.actions.get(key)
            if action is None or action.state is not ActionState.READY:
                attempts = set(action.attempts) if action is not None else set()
                new = self.world.cache.get((key.scope, key.action_id))
                if new is not None and new is not done.get((key.scope, key.action_id)):
                    attempts.add(new.provenance.attempt_id)
                assert attempts <= own, "only an attempt of its own changes an action"
                assert attempts, "an action does not leave READY without an attempt"

    def _lie(self, data: st.DataObject) -> tuple[str, str, str]:
        """An id, a token, and a kind of failure or none."""
        known = self.world.assigned
        keys = list(self.world.machine.state.actions)
        ids = [*known, *(f"{k.scope}/{k.action_id}/1-{n}" for k in keys for n in (1, 2, 99)), "x"]
        if known and data.draw(st.booleans()):  # another one's, whole
            attempt_id = data.draw(st.sampled_from(list(known)))
            return attempt_id, known[attempt_id][1].token, ""
        attempt_id = data.draw(st.sampled_from(ids))
        tokens = [a.token for _, a in known.values()]
        token = data.draw(st.sampled_from(["", "A" * 184, *tokens]))
        if attempt_id in known and data.draw(st.booleans()):
            token = known[attempt_id][1].token
        if token and data.draw(st.integers(0, 4)) == 0:
            at = data.draw(st.integers(0, len(token) - 1))
            token = f"{token[:at]}{'A' if token[at] != 'A' else 'B'}{token[at + 1 :]}"
        return attempt_id, token, data.draw(st.sampled_from(("", "", "engine", "bad-input")))


Attempts.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
TestAttempts = pytest.mark.slow(Attempts.TestCase)


def test_reports_of_a_hostile_worker_about_its_own_attempts_are_accepted() -> None:
    world = World()
    world.reconnects(HOSTILE)
    world.submit(w.plan(w.step("a")), "run")
    world.tick(0.5)
    [own] = world.attempts()
    claim = AttemptProgress(own.attempt_id, "running", token=own.token)
    assert world.reconnects(HOSTILE, attempts=(claim,)) == 0
    assert world.says(HOSTILE, ended=(end_of(own.attempt_id, own.token, "own"),)) == 0
    assert len(world.cache) == 1
