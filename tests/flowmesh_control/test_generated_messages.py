"""Law L4: whatever a worker says, nothing behind the gateway raises, and all of it can be stored.

Messages are those of honest workers with some values exchanged. ``FLOWMESH_MESSAGE_WORLDS=12500``
makes a million of them; each of the 50 that run by default has its share.
"""

import math
import os
import random
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.flowmesh_control.given import given_attempts
from tests.flowmesh_core.machine import world as w

from flowmesh_control.metrics.worker_telemetry import WorkerTelemetry
from flowmesh_control.workers.log_buffer import LogBuffer
from flowmesh_control.workers.message_intake import MessageIntake
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.costmodel import decode_model, encode_model
from flowmesh_core.graph.cel import truth
from flowmesh_core.graph.evaluation_budget import EvaluationBudget
from flowmesh_core.identity.digest import is_digest
from flowmesh_core.machine import commands as c
from flowmesh_core.machine import events as e
from flowmesh_core.machine.step_results import metrics_artifact
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    Component,
    EngineInstanceState,
    FailureReport,
    Hello,
    LogLine,
    Sync,
    decode_worker,
)
from flowmesh_core.protocol.results import (
    Artifact,
    Usage,
    decode_result,
    encode_result,
)
from flowmesh_core.protocol.validation import of_hello, problems
from flowmesh_core.status.projection import run_status
from flowmesh_core.units import Digest

# The library raises the limit of recursion with the first condition.
truth("true", {}, EvaluationBudget.of(1))
WORLDS = int(os.environ.get("FLOWMESH_MESSAGE_WORLDS", "50"))
MESSAGES = 80
A = "a" * 64
DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]
VALUES: list[Any] = [
    *(None, True, 0, -1, 1, 2**62, 2**63, 2**64 - 1, -(2**63)),
    *(0.5, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 1e-7),
    *("", "x", "\0", "x" * 3000, "../../etc/passwd", "/etc/passwd", A, "engine", "budget", "w1"),
    *("running", "storing", "ready", "missing-blob", "host-crashed", "out-of-memory", "device"),
    *(
        b"",
        b"\xff",
        [],
        {},
        [1],
        {"a": 1},
        {"a": math.inf},
        DEEP,
        {"a": DEEP},
        "a/b/c",
        f"s/{A}/1-1",
    ),
]
_DATA = w.dataset("one", "two", "three")


class World(w.World):
    """Workers end their attempts as messages say, and leave whatever checkpoints they like."""

    def _do(self, command: c.Command) -> None:
        match command:
            case c.Assign(worker, assignment):
                self.held.setdefault(worker, {})[assignment.attempt_id] = assignment
                self.generations[assignment.attempt_id] = command.generation
            case c.CancelAttempt(worker, attempt_id):
                self.held.get(worker, {}).pop(attempt_id, None)
            case c.Publish(_, result):
                assert decode_result(encode_result(result)).action_id == result.action_id
                super()._do(command)
            case c.DeleteCorruptBlobs(digests):
                assert all(map(is_digest, digests)), digests
            case c.PutBlob(digest, _):
                assert is_digest(digest)
            case _:
                super()._do(command)


class Worker:
    """A connection of a worker that may say anything."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.logs = LogBuffer(attempts=20)
        self.telemetry = WorkerTelemetry(self.logs, lambda name: "default")
        self.name, self.incarnation = "w1", world.incarnations["w1"]
        self.given = given_attempts("w1", "default", self.incarnation, lambda: world.now)
        self.intake = MessageIntake(self.given)
        self.taken = self.dropped = self.unreadable = 0
        self.seen = dict[str, Assignment]()
        self.tokens = dict[str, str]()

    def say(self, message: Hello | Sync) -> None:
        plain = msgspec.to_builtins(message, builtin_types=(bytes,))
        for _ in range(self.rng.choice((0, 1, 1, 1, 2, 3))):
            plain = self._changed(plain)
        try:
            told = decode_worker(msgspec.msgpack.encode(plain))
        except msgspec.DecodeError:
            self.unreadable += 1
            return
        if isinstance(told, Hello):
            self._hello(told)
        else:
            taken = self.intake.sync(told)
            self._check(taken.message)
            self.dropped += len(taken.dropped)
            self.telemetry.synced(self.name, taken.message)
            self.world.apply(
                e.WorkerSynced(self.name, self.incarnation, taken.message, taken.generations)
            )

    def _hello(self, hello: Hello) -> None:
        if of_hello(hello) is not None:
            self.dropped += 1
            return
        self.name, self.incarnation = hello.shape.name, hello.incarnation
        holder = (self.name, hello.shape.pool, self.incarnation)
        self.given = given_attempts(*holder, lambda: self.world.now)
        self.intake = MessageIntake(self.given)
        taken = self.intake.hello(hello)
        self._check(taken.message)
        self.dropped += len(taken.dropped)
        self.world.incarnations[self.name] = self.incarnation
        self.world.apply(e.WorkerConnected(taken.message, taken.generations))

    def _check(self, message: Hello | Sync) -> None:
        assert problems(message) == []
        self.taken += 1

    def _changed(self, value: Any) -> Any:
        """The value with something in it exchanged, added or taken away."""
        rng = self.rng
        if isinstance(value, dict) and value and rng.random() < 0.98:
            key = rng.choice(list(value))
            if rng.random() < 0.02:
                return {k: v for k, v in value.items() if k != key}
            if rng.random() < 0.03:
                return {**value, rng.choice(("x", "", "metrics", A)): rng.choice(VALUES)}
            return {**value, key: self._changed(value[key])}
        if isinstance(value, list | tuple) and value and rng.random() < 0.98:
            n = rng.randrange(len(value))
            again = [value[n]] if rng.random() < 0.1 else []
            return [*value[:n], self._changed(value[n]), *again, *value[n + 1 :]]
        # Most of another type end at the decoder, which is not what is tested here.
        alike = [v for v in VALUES if type(v) is type(value)]
        return rng.choice(alike if alike and rng.random() < 0.95 else VALUES)

    # -- what honest workers say -----------------------------------------------------------------

    def token_of(self, attempt_id: str) -> str:
        if self.rng.random() < 0.05:
            return self.rng.choice((*self.tokens.values(), ""))
        return self.tokens[attempt_id]

    def message(self) -> Hello | Sync:
        rng = self.rng
        held = list(self.world.held.get(self.name, {}).values())
        self.seen.update({a.attempt_id: a for a in held})
        for attempt in held:
            if attempt.attempt_id not in self.tokens:
                generation = self.world.generations[attempt.attempt_id]
                self.tokens[attempt.attempt_id] = self.given.give(
                    attempt.attempt_id, generation, ("ns-team-1",)
                )
        some = rng.sample(held, min(len(held), rng.randrange(3)))
        old = rng.sample(list(self.seen.values()), min(len(self.seen), rng.randrange(2)))
        ended = tuple(self.end(a) for a in (*some, *old))
        checkpoints = tuple(
            Checkpoint(
                a.attempt_id,
                Digest(A),
                0.5,
                10,
                (Digest(A),) * rng.randrange(2),
                self.token_of(a.attempt_id),
            )
            for a in some[:1]
        )
        progress = tuple(
            AttemptProgress(
                a.attempt_id,
                rng.choice(("loading", "running")),
                3,
                3.0,
                9.0,
                "rows",
                self.token_of(a.attempt_id),
            )
            for a in held
        )
        components = (Component(Digest(A), rng.choice(("disk", "device")), 10),)
        lanes = tuple(
            EngineInstanceState(a.signature, a.engine, rng.choice(("loading", "ready")), 4, 64, 1.5)
            for a in held[:1]
        )
        if rng.random() < 0.2:
            return Hello(
                version=2,
                epoch=0,
                incarnation=rng.choice((*[self.incarnation] * 9, "again")),
                started_s=self.world.now - 5,
                shape=w.shape(self.name, labels={"a": "b"}, libraries={"torch": "2"}),
                attempts=progress,
                ended=ended,
                instances=lanes,
                components=components,
                checkpoints=checkpoints,
                age_s=rng.choice((0.0, 5.0)),
            )
        return Sync(
            seq=1,
            progress=progress,
            ended=ended,
            instances=lanes,
            components=components,
            logs=tuple(LogLine(a.attempt_id, 1.0, "a line") for a in held[:1]),
            metrics={"stored_bytes": 1.0, "agent_cpu_s": 2.0},
            draining=rng.random() < 0.05,
            goodbye=rng.random() < 0.02,
            checkpoints=checkpoints,
        )

    def end(self, a: Assignment) -> AttemptEnd:
        rng = self.rng
        outputs, failure = outputs_of(a), None
        if rng.random() < 0.4:
            kind = rng.choice(
                ("engine", "missing-blob", "out-of-memory", "host-crashed", "drained")
            )
            failure = FailureReport(kind, "it failed", "", A, 0.5)
        return AttemptEnd(
            attempt_id=a.attempt_id,
            action_id=a.action_id,
            outputs=outputs if failure is None else {},
            inline={Digest(w.digest_bytes(b"x")): b"x"},
            failure=failure,
            usage=Usage(units=3, tokens_in=1, tokens_out=2, load_s=0.1, run_s=0.3, joules=2.0),
            libraries={"torch": "2"},
            started_s=1.0,
            ended_s=2.0,
            log="one\ntwo",
            token=self.token_of(a.attempt_id),
        )


def outputs_of(a: Assignment) -> dict[str, Artifact]:
    given = w.outputs_of(a)
    values = given["metrics"].value or {}
    return {**given, "metrics": metrics_artifact({**values, "score": 0.7})}


def a_world() -> World:
    world = World()
    world.join("w1", "w2")
    reads = w.step("gate", *w.after("a"), when="steps['a'].metrics.score > 0.5", when_steps=("a",))
    for n in range(3):
        steps = (
            w.step("a", value=n),
            reads,
            w.step("call", uses=w.CALL, value=n),
            w.step("map", w.rows_of(_DATA), uses=w.MAP, value=n),
            w.step("again", w.rows_of("map"), uses=w.MAP, value=n),
        )
        world.submit(w.plan(*steps, namespace=f"team-{n}"), f"run-{n}", artifacts=[_DATA])
    world.tick(0.3)
    return world


def storable(world: World) -> None:
    """All that the control plane writes down or shows can be written, and read again."""
    for lines in world.ledger.values():
        for line in lines:
            msgspec.json.decode(msgspec.json.encode(line), type=Line)
    state = world.machine.state
    for uid in state.runs:
        msgspec.json.encode(run_status(state, uid, world.now))
    decode_model(encode_model(state.model))
    assert math.isfinite(sum(state.figures.error["test.noop"].counts))


def talk(seed: int) -> Worker:
    rng = random.Random(seed)
    world = a_world()
    worker = Worker(world, rng)
    for _ in range(MESSAGES):
        worker.say(worker.message())
        if rng.random() < 0.3:
            world.tick(rng.choice((0.0, 0.3, 2.0)))
        if worker.name not in world.machine.state.workers:
            world.join("w1")
            worker = Worker(world, rng)
    storable(world)
    return worker


@settings(max_examples=WORLDS)
@given(st.integers(0, 2**64 - 1))
@example(3_911_673_801_394)  # attempts that had crashed come back, and crash once more
def test_no_worker_message_raises_an_error_behind_the_gateway(seed: int) -> None:
    talk(seed)


def test_the_generated_messages_cover_every_kind() -> None:
    workers = [talk(seed) for seed in range(5)]
    assert min(sum(getattr(x, n) for x in workers) for n in ("taken", "dropped", "unreadable")) > 20
