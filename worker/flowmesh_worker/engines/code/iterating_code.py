"""Runs steps of a Python component that iterates, and keeps the states of its calls.

Used by :class:`ComponentCode`, in the resident sandbox or in the engine host. Which calls take part
in a step, and when, is decided by the component host (:mod:`component_batches`); the code has a
state for each call that has begun.
"""

import operator
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from flowmesh_core.stages.component_methods import REMAINING
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    CallResult,
    ResultKind,
    StepMember,
)
from flowmesh_worker.ipc.passed_values import NO_VALUES, StageBytes


class WrongStepError(Exception):
    """A method of a component that iterates returned something else than it should."""


class StepResults(NamedTuple):
    """What a step made of its members.

    Attributes:
        results: of each, in order.
        start_s: seconds in which calls were begun; ``finish_s`` in which results were made.
    """

    results: list[CallResult]
    start_s: float = 0.0
    finish_s: float = 0.0


class CallValues(Protocol):
    """Inputs and results of calls."""

    def read_inputs(
        self, call: BatchCall, passed: Mapping[str, StageBytes]
    ) -> dict[str, Any] | CallResult:
        """Returns the inputs of a call, or the result that it has without them."""
        ...

    def write_result(self, call: BatchCall, value: Any) -> CallResult:
        """Returns a value as the result of a call."""
        ...

    def raised(self, error: Exception) -> CallResult:
        """Returns the result of a call that has raised."""
        ...


class _State(NamedTuple):
    """The state of a call that has begun, as the code made it."""

    call: BatchCall
    value: Any


class IteratingCode:
    """One component that iterates."""

    def __init__(self, name: str, component: Any) -> None:
        """Keeps no states yet.

        Args:
            name: of the component.
            component: an object with ``start``, ``step`` and ``finish``.
        """
        self._name = name
        self._component = component
        self._remaining: Callable[[Any], Any] | None = getattr(component, REMAINING, None)
        self._states: dict[str, _State] = {}

    @property
    def states(self) -> frozenset[str]:
        """The names of the states that are kept."""
        return frozenset(self._states)

    def forget(self, names: Iterable[str]) -> None:
        """Drops states of calls that are not wanted any more."""
        for name in names:
            self._states.pop(name, None)

    def step(
        self,
        members: Sequence[StepMember],
        passed: Sequence[Mapping[str, StageBytes]],
        values: CallValues,
    ) -> StepResults:
        """Begins the calls that are new, runs one step of all, and finishes those that are done.

        A call that raises in ``start`` or ``finish`` fails alone. Where ``step`` raises, no state
        of the batch can be trusted, so all are dropped.

        Args:
            members: calls that begin, and names of states.
            passed: of each member, inputs that components of other hosts have made.
            values: reads inputs and writes results.
        """
        began_s = time.perf_counter()
        results: dict[int, CallResult] = {}
        for number, member in enumerate(members):
            if member.call is not None:
                inputs = passed[number] if passed else NO_VALUES
                failed = self._start(member.state, member.call, inputs, values)
                if failed is not None:
                    results[number] = failed
            elif member.state not in self._states:
                results[number] = CallResult(ResultKind.STATE_LOST)
        started_s = time.perf_counter()
        taking = [(n, m.state) for n, m in enumerate(members) if n not in results]
        try:
            done = self._step([self._states[name].value for _, name in taking])
        except Exception as error:
            self.forget(name for _, name in taking)
            alone = len(taking) == 1
            result = values.raised(error) if alone else CallResult(ResultKind.RESTART)
            results |= {number: result for number, _ in taking}
            done, taking = [], []
        stepped_s = time.perf_counter()
        for (number, name), is_done in zip(taking, done, strict=True):
            results[number] = self._finish(name, values) if is_done else self._go_on(name, values)
        finish_s = time.perf_counter() - stepped_s
        ordered = [results[number] for number in range(len(members))]
        return StepResults(ordered, started_s - began_s, finish_s)

    def _start(
        self, name: str, call: BatchCall, passed: Mapping[str, StageBytes], values: CallValues
    ) -> CallResult | None:
        """Makes the state of a call; returns the call's result where it has failed."""
        inputs = values.read_inputs(call, passed)
        if isinstance(inputs, CallResult):
            return inputs
        try:
            self._states[name] = _State(call, self._component.start(inputs))
        except Exception as error:
            return values.raised(error)
        return None

    def _step(self, states: list[Any]) -> list[bool]:
        if not states:
            return []
        returned = self._component.step(states)
        try:
            found = list(returned)
            done = [bool(one) for one in found if one in (True, False)]
        except (TypeError, ValueError) as error:
            raise self._wrong_step(len(states)) from error
        if not len(done) == len(found) == len(states):
            raise self._wrong_step(len(states))
        return done

    def _wrong_step(self, states: int) -> WrongStepError:
        return WrongStepError(
            f"step of {self._name} returned something else for {states} states: expected a list"
            " with True for each that is finished and False for each other, in order"
        )

    def _finish(self, name: str, values: CallValues) -> CallResult:
        state = self._states.pop(name)
        try:
            value = self._component.finish(state.value)
        except Exception as error:
            return values.raised(error)
        return values.write_result(state.call, value)

    def _go_on(self, name: str, values: CallValues) -> CallResult:
        if self._remaining is None:
            return CallResult(ResultKind.UNFINISHED)
        try:
            left = self._steps_left(self._remaining(self._states[name].value))
        except Exception as error:
            self._states.pop(name)
            return values.raised(error)
        return CallResult(ResultKind.UNFINISHED, remaining=max(1, left))

    def _steps_left(self, found: Any) -> int:
        try:
            return operator.index(found)
        except TypeError as error:
            raise WrongStepError(
                f"remaining of {self._name} returned {type(found).__name__}: expected an int, the"
                " steps that are left"
            ) from error
