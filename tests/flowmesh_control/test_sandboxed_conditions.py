"""Conditions in a child process: equal results, and what happens when the child ends."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest
from tests.attacks.test_50_nested_macros import CANNOT_BE_DECIDED, HONEST, NEEDS_TOO_MUCH, PARAMS
from tests.flowmesh_control.waiting import until

from flowmesh_control.errors import EvaluatorUnavailableError
from flowmesh_control.evaluators import process as process_module
from flowmesh_control.evaluators.conditions import SandboxedConditions
from flowmesh_control.evaluators.confinement import child_environment
from flowmesh_control.loop.evaluations import QueuedEvaluations
from flowmesh_core.errors import FailureKind
from flowmesh_core.graph.conditions import ConditionQuery, ConditionVerdict, verdict_of
from flowmesh_core.graph.evaluation_budget import RUN_STEPS, STEPS_MAX
from flowmesh_core.machine.commands import Command, EvaluateCondition
from flowmesh_core.machine.events import ConditionEvaluated, Event


def query(text: str, **changes: Any) -> ConditionQuery:
    given: dict[str, Any] = {"params": PARAMS, "matrix": {}, "steps": {}}
    return ConditionQuery(
        text, **{**given, "granted": STEPS_MAX, "run_total": RUN_STEPS + 50, **changes}
    )


@pytest.fixture
async def evaluator() -> AsyncIterator[SandboxedConditions]:
    made = SandboxedConditions()
    yield made
    await made.close()


def children() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if "conditions" in p.cmdline()]


async def test_results_equal_those_of_an_in_process_evaluation(
    evaluator: SandboxedConditions,
) -> None:
    for text in CANNOT_BE_DECIDED.values():  # in which words may depend on the depth of the stack
        assert (await evaluator.evaluate(query(text))).failure is not None, text
    texts = [*HONEST, *NEEDS_TOO_MUCH.values()]
    texts += ["size(params.list) == 3000", "params.list == ['a']", "1 + 1", "1 +", "params.no"]
    for text in texts:
        expected, found = verdict_of(query(text)), await evaluator.evaluate(query(text))
        assert (found.holds, found.failure) == (expected.holds, expected.failure), text
        assert abs(found.steps - expected.steps) <= 1
    skipped = query("steps['a'].metrics.x > 1", steps={"a": None})
    assert await evaluator.evaluate(skipped) == verdict_of(skipped)
    judge = {"metrics": {"mean": None}, "counts": {"rows": 12, "unparsed": 12}}
    null = query("steps['judge'].metrics.mean > 0.5", steps={"judge": judge})
    found = (await evaluator.evaluate(null)).failure
    assert found is not None
    assert found == verdict_of(null).failure
    assert "mean is null: 12 of 12 answers contained no verdict" in found.message
    assert evaluator.process.started == 1, "no condition ended the child"


async def test_only_the_values_that_a_condition_reads_are_sent(
    evaluator: SandboxedConditions, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    send = evaluator.process.send

    async def watched(data: bytes) -> None:
        sent.append(len(data))
        await send(data)

    monkeypatch.setattr(evaluator.process, "send", watched)
    small = query("params.n == 1", params={**PARAMS, "n": 1})
    assert (await evaluator.evaluate(small)).holds
    assert sum(sent) < 500
    sent.clear()
    too_large = await evaluator.evaluate(query("size(params.huge) > 1"))
    assert too_large.failure is not None
    assert "needs more than 5,000 steps" in too_large.failure.message
    assert sum(sent) < 500


async def test_a_non_json_value_fails_the_condition(
    evaluator: SandboxedConditions,
) -> None:
    found = await evaluator.evaluate(query("params.n == 1", params={"n": 2**70}))
    assert found.failure is not None
    assert found.failure.kind is FailureKind.BAD_INPUT


async def test_a_child_that_was_killed_is_started_again(evaluator: SandboxedConditions) -> None:
    assert (await evaluator.evaluate(query("true"))).holds
    (child,) = children()
    child.kill()
    assert (await evaluator.evaluate(query("true"))).holds
    assert evaluator.process.started == 2
    await evaluator.close()
    assert not children()


async def test_a_child_that_does_not_answer_is_killed_and_the_error_names_condition_and_limit() -> (
    None
):
    evaluator = SandboxedConditions(deadline_s=0.2)
    await evaluator.process.start()
    (child,) = children()
    child.suspend()
    found = await evaluator.evaluate(query("1 == 1"))
    assert found.failure is not None
    assert found.failure.message == ("the condition '1 == 1' was not evaluated within 0.2 s")
    assert found.failure.remedy
    assert found.steps == STEPS_MAX
    assert not psutil.pid_exists(child.pid)
    await evaluator.close()


@pytest.mark.parametrize(
    ("code", "limit", "starts"),
    [
        ("while True: pass", "needs more than 1 s of processor time", 1),
        ("import os; os.abort()", "ended twice, at last with code -6; it may have needed more", 2),
        ("x = bytearray(1 << 30)", "with code 1; it may have needed more than 256 MiB", 2),
    ],
)
async def test_exceeding_a_limit_of_the_child_fails_only_that_condition(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    code: str,
    limit: str,
    starts: int,
) -> None:
    """The library is replaced by one that misbehaves, as if a count had a gap."""
    (tmp_path / "sitecustomize.py").write_text(
        "import flowmesh_core.graph.conditions as c\n"
        "evaluate = c.evaluate\n"
        "def misbehave(text, **more):\n"
        "    if text == '1 == 1':\n"
        f"        {code}\n"
        "    return evaluate(text, **more)\n"
        "c.evaluate = misbehave\n"
    )
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *sys.path]))
    evaluator = SandboxedConditions(deadline_s=300.0)  # however busy this machine is
    found = await evaluator.evaluate(query("1 == 1"))
    assert found.failure is not None
    assert "the condition '1 == 1' " in found.failure.message
    assert limit in found.failure.message
    assert evaluator.process.started == starts
    assert (await evaluator.evaluate(query("2 == 2"))).holds
    await evaluator.close()


async def test_a_child_that_cannot_start_does_not_fail_a_condition(
    evaluator: SandboxedConditions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(process_module.sys, "executable", "/bin/false")
        with pytest.raises(EvaluatorUnavailableError, match="does not start"):
            await evaluator.evaluate(query("true"))
    assert (await evaluator.evaluate(query("true"))).holds


async def test_a_request_that_is_cancelled_leaves_no_reply_for_the_next(
    evaluator: SandboxedConditions,
) -> None:
    await evaluator.process.start()
    (child,) = children()
    child.send_signal(signal.SIGSTOP)
    task = asyncio.create_task(evaluator.evaluate(query("true")))
    await until(evaluator._one_at_a_time.locked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    found = await evaluator.evaluate(query("false"))
    assert (found.holds, found.failure) == (False, None)
    assert evaluator.process.started == 2


def test_the_child_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "FLOWMESH_WORKER_TOKEN", "FLOWMESH_S3_SECRET_KEY"):
        monkeypatch.setenv(name, "secret")
    assert "secret" not in child_environment().values()


class Owners:
    """Namespaces by the beginning of a run's uid; nothing awaits those that left."""

    def __init__(self) -> None:
        self.left: set[str] = set()

    def namespaces(self, command: Command) -> tuple[str, ...]:
        assert isinstance(command, EvaluateCondition)
        return (command.uid.split("-")[0],)

    def awaits(self, command: Command) -> bool:
        assert isinstance(command, EvaluateCondition)
        return command.uid not in self.left


class Recorded:
    """An evaluator that notes the order, and is unavailable at first."""

    def __init__(self, unavailable: int) -> None:
        self.unavailable = unavailable
        self.texts: list[str] = []

    async def evaluate(self, query: ConditionQuery) -> ConditionVerdict:
        if self.unavailable:
            self.unavailable -= 1
            raise EvaluatorUnavailableError("no process")
        self.texts.append(query.text)
        return ConditionVerdict(holds=True, steps=1)


async def test_namespaces_take_turns_and_unawaited_conditions_are_not_evaluated() -> None:
    posted: list[Event] = []
    owners, evaluator, failures = Owners(), Recorded(0), list[BaseException]()
    queue = QueuedEvaluations(
        evaluator,
        owners=owners,
        weight=lambda _: 1.0,
        post=posted.append,
        failed=failures.append,
    )
    for n in range(10):
        queue.submit(EvaluateCondition(f"a-{n}", n, query(f"a{n}")))
    queue.submit(EvaluateCondition("b-1", 11, query("b1")))
    owners.left.add("a-1")
    queue.start()
    await until(lambda: len(posted) == 11)
    assert evaluator.texts.index("b1") <= 1
    assert "a1" not in evaluator.texts
    assert ConditionEvaluated("a-1", 1, ConditionVerdict()) in posted
    await queue.stop()
    assert failures == []


async def test_a_condition_waits_while_no_child_can_be_started() -> None:
    posted: list[Event] = []
    evaluator, failures = Recorded(2), list[BaseException]()
    queue = QueuedEvaluations(
        evaluator,
        owners=Owners(),
        weight=lambda _: 1.0,
        post=posted.append,
        failed=failures.append,
    )
    queue.submit(EvaluateCondition("a-1", 7, query("true")))
    queue.start()
    await until(lambda: posted)
    assert posted == [ConditionEvaluated("a-1", 7, ConditionVerdict(holds=True, steps=1))]
    await queue.stop()
    assert failures == []
