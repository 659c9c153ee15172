"""Answers ``EvaluateCondition``: at once, or from a queue that serves the namespaces in turn.

Used by the command executor. At once is for a control plane whose runs all have one owner. The
queue has one place, since the evaluator answers one request at a time.
"""

import logging
from collections.abc import Callable

from flowmesh_control.loop.task_pool import TaskPool
from flowmesh_control.ports import ConditionEvaluator, TaskOwners
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.graph.conditions import ConditionVerdict, verdict_of
from flowmesh_core.machine.commands import EvaluateCondition
from flowmesh_core.machine.events import ConditionEvaluated, Event

log = logging.getLogger(__name__)


class InlineEvaluations:
    """Evaluates each condition at once, in this process."""

    def __init__(self, post: Callable[[Event], None], begin: Callable[[str], None]) -> None:
        """Has no state of its own.

        Args:
            post: posts an event to the machine.
            begin: called with the uid of the run whose condition is evaluated next.
        """
        self._post = post
        self._begin = begin

    def submit(self, command: EvaluateCondition) -> None:
        """Evaluates a condition and posts its result."""
        self._begin(command.uid)
        verdict = verdict_of(command.query)
        self._post(ConditionEvaluated(command.uid, command.number, verdict))

    def start(self) -> None:
        """Does nothing."""

    async def stop(self) -> None:
        """Does nothing."""


class QueuedEvaluations:
    """Passes conditions to an evaluator, one at a time."""

    def __init__(
        self,
        evaluator: ConditionEvaluator,
        *,
        owners: TaskOwners,
        weight: Callable[[str], float],
        post: Callable[[Event], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Starts without conditions.

        Args:
            evaluator: evaluates them.
            owners: says for which namespace a condition is evaluated.
            weight: of a namespace, as in placement.
            post: posts an event to the machine.
            failed: called with an unexpected error.
        """
        self._evaluator = evaluator
        self._owners = owners
        self._post = post
        self._tasks = TaskPool(failed=failed, waits=_note, weight=weight, count=1)

    def submit(self, command: EvaluateCondition) -> None:
        """Queues a condition."""
        self._tasks.submit(self._evaluate, command, self._owners.namespaces(command))

    def start(self) -> None:
        """Begins to evaluate."""
        self._tasks.start()

    async def stop(self) -> None:
        """Ends; what is not evaluated is evaluated by the next leader."""
        await self._tasks.stop()

    async def _evaluate(self, command: EvaluateCondition) -> None:
        verdict = ConditionVerdict()  # also for one that is not awaited: its steps become free
        if self._owners.awaits(command):
            verdict = await self._evaluator.evaluate(command.query)
        self._post(ConditionEvaluated(command.uid, command.number, verdict))


def _note(error: FlowMeshError) -> None:
    log.warning("conditions wait: %s", error)
