"""A host of one component that iterates, in virtual time: a step takes what a curve says.

The states are those of the real table, in a process that is played: it ends when the test says so,
as the sandbox does, and so do its states.
"""

import asyncio
import itertools
import random
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from flowmesh_core.protocol.serving import ComponentCall
from flowmesh_core.stages.stage_timing import UNTIMED, StageTiming
from flowmesh_worker.engines.code.component_batches import ComponentBatches
from flowmesh_worker.engines.code.component_code import ComponentCode
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    CallResult,
    LoadedCode,
    ResultKind,
    StepMember,
)
from flowmesh_worker.engines.code.iterating_code import StepResults
from flowmesh_worker.ipc.passed_values import StageBytes
from flowmesh_worker.ipc.spare_files import SpareFiles

CODE = """
class State:
    def __init__(self, call):
        self.call, self.left, self.total = call, call["steps"], 0

class Iterating:
    began = None

    def start(self, call):
        if call.get("raises") == "start":
            raise ValueError("start")
        state = State(call)
        if self.began is not None:
            self.began(state)
        return state

    def step(self, states):
        if any(state.call.get("raises") == "step" for state in states):
            raise ValueError("step")
        for state in states:
            state.total += state.left
            state.left -= 1
        return [not state.left for state in states]

    def finish(self, state):
        if state.call.get("raises") == "finish":
            raise ValueError("finish")
        return state.total

class Counted(Iterating):
    def remaining(self, state):
        return state.left

def compute(batch):
    return [0] * len(batch)
"""
Curve = Callable[[int], float]
NAME, OTHER = "steps", "other"
TIMEOUT_MS = 10**6


def total_of(steps: int) -> int:
    """Returns the result of a call, by a formula."""
    return steps * (steps + 1) // 2


@dataclass
class RanStep:
    """A step or a batch that has run.

    Attributes:
        members: requests that took part, in order.
    """

    component: str
    began_s: float
    ended_s: float
    members: tuple[str, ...]


@dataclass
class PlayedProcess:
    """The process of the code: runs one step at a time, and forgets after it, as the sandbox does.

    Attributes:
        curves: seconds by the size of a step, by component.
        crashes: says before a step whether the process ends on it.
        check: called before each step.
        began: request → its state, while that exists.
    """

    curves: Mapping[str, Curve]
    function: str = "Iterating"
    batch_max: int = 8
    crashes: Callable[[Sequence[str]], bool] = lambda _: False
    check: Callable[[], None] = lambda: None
    log: list[RanStep] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    began: "weakref.WeakValueDictionary[str, Any]" = field(
        default_factory=weakref.WeakValueDictionary
    )
    restarts: int = 0
    code: ComponentCode = field(init=False)
    _is_busy: bool = False
    _to_forget: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.components = (
            LoadedCode(NAME, CODE, self.function, self.batch_max),
            *(LoadedCode(n, CODE, "compute", self.batch_max) for n in self.curves if n != NAME),
        )
        self.load()

    def load(self) -> None:
        self.code = ComponentCode(self.components, SpareFiles())
        component = self.code._iterating[NAME]._component
        component.began = lambda state: self.began.__setitem__(state.call["id"], state)

    @property
    def iterating(self) -> tuple[str, ...]:
        return self.code.iterating

    async def step(
        self,
        component: str,
        members: Sequence[StepMember],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> StepResults:
        self.check()
        for one in members:
            if one.call is not None:
                self.names[one.state] = msgspec.json.decode(one.call.body)["id"]
        names = tuple(self.names[one.state] for one in members)
        curve_s = self.curves[component](len(members))
        timed_out = curve_s > within_s
        await self._pass_time(component, names, min(curve_s, within_s))
        if timed_out or self.crashes(names):
            self.restarts += 1
            self.load()
            kind = ResultKind.RAISED if len(members) == 1 else ResultKind.RESTART
            results = StepResults([CallResult(kind, error="it ended")] * len(members))
        else:
            results = self.code.step(component, members)
        self._end()
        return results

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> list[CallResult]:
        bodies = [msgspec.json.decode(call.body) for call in calls]
        steps = max(body["steps"] for body in bodies)  # a batch is as long as its longest call
        names = tuple(body["id"] for body in bodies)
        await self._pass_time(component, names, steps * self.curves[component](len(calls)))
        results = self.code.run(component, calls)
        self._end()
        return results

    async def _pass_time(self, component: str, names: tuple[str, ...], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began_s, self._is_busy = loop.time(), True
        await asyncio.sleep(seconds)
        self.log.append(RanStep(component, began_s, loop.time(), names))

    def _end(self) -> None:
        self._is_busy = False
        self.code.forget(self._to_forget)
        self._to_forget.clear()

    def forget(self, keys: tuple[str, ...]) -> None:
        if self._is_busy:
            self._to_forget += keys
        else:
            self.code.forget(keys)

    async def close(self) -> None:
        pass

    def sizes(self) -> list[int]:
        """The sizes of the steps."""
        return [len(ran.members) for ran in self.log if ran.component == NAME]


def host_of(process: PlayedProcess, on_late: str = "demote") -> ComponentBatches:
    """Returns the host of a process."""
    return ComponentBatches(process.components, process, on_late, lambda: None)


def call_of(
    request: str,
    steps: int,
    *,
    component: str = NAME,
    slo_ms: int = 0,
    budget_ms: int = TIMEOUT_MS,
    timing: StageTiming = UNTIMED,
    **more: Any,
) -> ComponentCall:
    """Returns a call of so many steps."""
    body = msgspec.json.encode({"id": request, "steps": steps, **more})
    return ComponentCall(
        request, component, body, {}, "", True, budget_ms, slo_ms, timing=timing, timed=True
    )


def draw_steps(rng: random.Random) -> int:
    """Returns a number of steps: most calls have few, some many."""
    return round(4 * 16 ** rng.random())


def numbered(prefix: str = "r") -> Callable[[], str]:
    """Returns a source of names of requests."""
    numbers = itertools.count()
    return lambda: f"{prefix}{next(numbers)}"
