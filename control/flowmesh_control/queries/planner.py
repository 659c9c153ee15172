"""Forecasts a workflow for ``fmesh plan``, without running anything.

A scratch machine is given the plan and looks up results in the real store, as the real machine
would. The outputs of a hit identify the next actions. The learned cost model predicts what the
remaining actions would cost on the connected workers, or on those that other pools would start.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flowmesh_api.v1.enums import StepState
from flowmesh_api.v1.plan import GUESS, NOTHING, Forecast, PlannedStep
from flowmesh_control.errors import PlanRefusedError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.ports import ConditionEvaluator
from flowmesh_control.runs.admission import Compiled
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.costmodel.model import CostKey, Prediction
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.machine.commands import Command, EvaluateCondition, LookUp, Publish
from flowmesh_core.machine.events import ConditionEvaluated, LookedUp, Published, Submitted
from flowmesh_core.machine.machine import Machine
from flowmesh_core.machine.model import Action, Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.placement.constraints import unmet, unmet_remedy
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.units import Digest, usd_text
from flowmesh_store.action_cache import ActionCache

PLAN_UID = "plan"
CHECK_S = 10.0
"""A workflow whose forecast takes longer is accepted unchecked: its run ends at its terms."""


@dataclass(slots=True)
class _Cost:
    """The predicted cost of one step's actions, and what is missing where no worker can run one."""

    nanousd: int = 0
    seconds: float = NOTHING
    joules: float = NOTHING
    errors: list[float] = field(default_factory=list)
    signatures: set[str] = field(default_factory=set)
    workers: set[str] = field(default_factory=set)
    samples: int = 0
    missing: str = ""


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The shapes that a namespace may use: of connected workers, and of pools without any."""

    connected: list[WorkerShape]
    startable: list[WorkerShape]


class Planner:
    """Forecasts workflows on the connected workers and the pools that may start some."""

    def __init__(
        self,
        *,
        state: State,
        cache: ActionCache,
        clock: Clock,
        quarantine_salts: Callable[[], Mapping[Digest, int]],
        conditions: ConditionEvaluator,
        pools: Callable[[], Sequence[PoolView]],
    ) -> None:
        """Keeps what forecasts are computed from.

        Args:
            state: the machine's; only its workers and cost model are read.
            cache: published results.
            clock: Unix time in seconds.
            quarantine_salts: the signature classes in quarantine, as for a run that is accepted
                now.
            conditions: evaluates conditions.
            pools: the declared pools; none where workers come by themselves.
        """
        self._state = state
        self._cache = cache
        self._clock = clock
        self._quarantine_salts = quarantine_salts
        self._conditions = conditions
        self._pools = pools

    async def check_terms(self, compiled: Compiled) -> None:
        """Refuses a workflow whose forecast exceeds its budget or deadline.

        Raises:
            PlanRefusedError: with every reason.
        """
        plan = compiled.plan
        if not (plan.budget_nanousd or plan.deadline_s):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_S):
                forecast = await self.forecast(compiled)
                if forecast.refusals:
                    raise PlanRefusedError("; ".join(forecast.refusals), where=forecast.name)

    async def forecast(self, compiled: Compiled) -> Forecast:
        """Returns the expected hits, cost, time and energy of a compiled workflow."""
        scratch = await self._walk(compiled)
        run = scratch.runs[PLAN_UID]
        steps, costs = [], []
        plan = compiled.plan
        fleet = self._open_fleet(plan.namespace)
        for step in run.steps.values():
            cost = self._cost(scratch, step, fleet)
            costs.append(cost)
            steps.append(_planned(step, cost, self._missing(step, cost, plan.namespace)))
        nanousd = sum(s.nanousd for s in steps)
        seconds = _longest_path(run, {s.path: s.seconds for s in steps})
        errors = [e for c in costs for e in c.errors]
        measured = [s for s in steps if s.sure != GUESS]
        return Forecast(
            name=plan.name,
            namespace=plan.namespace,
            steps=tuple(steps),
            actions=sum(s.actions for s in steps),
            hits=sum(s.hits for s in steps),
            batches=sum(s.batches for s in steps),
            nanousd=nanousd,
            seconds=seconds,
            joules=sum(s.joules for s in steps),
            error=sum(errors) / len(errors) if errors else 0.0,
            unknown=sum(s.expect == "unknown" for s in steps),
            scopes=compiled.scopes.lookup,
            refusals=_refusals(compiled, nanousd, seconds),
            unmeasured=len(steps) - len(measured),
            least_nanousd=sum(s.nanousd for s in measured),
            least_seconds=_longest_path(run, {s.path: s.seconds for s in measured}),
            least_joules=sum(s.joules for s in measured),
        )

    async def _walk(self, compiled: Compiled) -> State:
        now_s = self._clock()
        machine = Machine(
            epoch=0,
            catalog=self._state.catalog,
            settings=self._state.settings,
            model=self._state.model,
        )
        todo: list[Command] = machine.apply(
            Submitted(
                PLAN_UID,
                compiled.plan,
                now_s,
                compiled.scopes,
                compiled.artifacts,
                quarantine_salts=self._quarantine_salts(),
            ),
            now_s,
        )
        while todo:
            command = todo.pop()
            if isinstance(command, LookUp):
                found = await self._cache.lookup(
                    command.key.action_id,
                    command.scopes,
                    not_before_s=command.not_before_s,
                    min_trust=command.min_trust,
                )
                result = None if found is None else _counted(compiled, found.result)
                todo += machine.apply(_answer(command, result), now_s)
            elif isinstance(command, Publish):
                # The real run would write this step-level record; here it counts as written.
                published = Published(command.key, command.result, adopted=False)
                todo += machine.apply(published, now_s)
            elif isinstance(command, EvaluateCondition):
                verdict = await self._conditions.evaluate(command.query)
                evaluated = ConditionEvaluated(command.uid, command.number, verdict)
                todo += machine.apply(evaluated, now_s)
        return machine.state

    def _open_fleet(self, namespace: str) -> _Fleet:
        """Returns workers and pools, without those reserved for other namespaces."""
        reserved = self._state.reserved_pools or {}
        connected = [w.shape for _, w in sorted(self._state.workers.items())]
        present = {shape.pool for shape in connected}
        startable = [p.shape for p in self._pools() if p.most and p.name not in present]

        def usable(shapes: Sequence[WorkerShape]) -> list[WorkerShape]:
            return [s for s in shapes if namespace in reserved.get(s.pool, (namespace,))]

        return _Fleet(usable(connected), usable(startable))

    def _missing(self, step: StepRun, cost: _Cost, namespace: str) -> str:
        """Returns why no worker can run a step now; empty where one can."""
        if cost.workers:
            return ""
        reserved = self._state.reserved_pools or {}
        closed = sorted(
            {
                w.shape.pool
                for w in self._state.workers.values()
                if step.plan.engine in w.shape.engines
                and namespace not in reserved.get(w.shape.pool, (namespace,))
            }
        )
        text = "no connected worker can run it now" + (f": {cost.missing}" if cost.missing else "")
        if closed:
            text += f"; pool {' and '.join(closed)} is reserved for other namespaces"
        return text

    def _cost(self, scratch: State, step: StepRun, fleet: _Fleet) -> _Cost:
        cost = _Cost()
        keys = {p.key for p in step.parts.values() if p.result is None and p.key is not None}
        by_worker: defaultdict[str, float] = defaultdict(float)
        for key in keys:
            action = scratch.actions.get(key)
            if action is not None:
                self._add(cost, by_worker, action, fleet)
        if not step.ended and not keys:
            self._guess(cost, by_worker, step, fleet)
        cost.seconds = max(by_worker.values(), default=NOTHING)
        return cost

    def _add(
        self,
        cost: _Cost,
        by_worker: "defaultdict[str, float]",
        action: Action,
        fleet: _Fleet,
    ) -> None:
        info = action.info
        able = _able(fleet, lambda s: unmet(info.requirement, s) is None)
        first = info.signature not in cost.signatures
        cost.signatures.add(info.signature)
        if able:
            self._charge(cost, by_worker, able, info, action.spec.work, loads=first)
        elif fleet.connected:
            cost.missing = unmet_remedy(info.requirement, fleet.connected)

    def _guess(
        self,
        cost: _Cost,
        by_worker: "defaultdict[str, float]",
        step: StepRun,
        fleet: _Fleet,
    ) -> None:
        able = _able(fleet, lambda s: step.plan.engine in s.engines)
        if able:
            key = CostKey(step.plan.engine, step.plan.path, step.contract.work_unit)  # type: ignore[arg-type]
            shape = able[0]
            found = self._state.model.predict(key, shape.device_class, WorkSize())
            _count(cost, by_worker, shape, found, found.seconds)
            cost.samples = 0

    def _charge(
        self,
        cost: _Cost,
        by_worker: "defaultdict[str, float]",
        able: list[WorkerShape],
        info: SignatureInfo,
        work: WorkSize,
        *,
        loads: bool,
    ) -> None:
        key, model = CostKey.of(info), self._state.model
        batch = float(max(1, info.capacity))
        found = {s.name: model.predict(key, s.device_class, work, batch=batch) for s in able}
        shape = min(able, key=lambda s: by_worker[s.name] + found[s.name].seconds)
        prediction = found[shape.name]
        load_s = prediction.load_s if loads and not self._is_loaded(shape, info) else 0.0
        _count(cost, by_worker, shape, prediction, prediction.seconds * prediction.share + load_s)
        cost.nanousd += round(load_s * shape.price_nanousd_per_hour / 3600)
        cost.joules += load_s * shape.power_w

    def _is_loaded(self, shape: WorkerShape, info: SignatureInfo) -> bool:
        worker = self._state.workers.get(shape.name)
        return worker is not None and any(la.signature == info.signature for la in worker.instances)


def _able(fleet: _Fleet, holds: Callable[[WorkerShape], bool]) -> list[WorkerShape]:
    """Returns the connected workers that can run work, else the pools whose workers could."""
    return list(filter(holds, fleet.connected)) or list(filter(holds, fleet.startable))


def _answer(c: LookUp, result: ActionResult | None) -> LookedUp:
    return LookedUp(c.key, result, c.scopes, c.not_before_s, c.min_trust)


def _counted(compiled: Compiled, result: ActionResult) -> ActionResult | None:
    """Returns a result that the forecast may count as a hit.

    Where results are shared without names, a forecast must not tell what other namespaces ran.
    """
    foreign = result.namespace != compiled.plan.namespace
    return None if compiled.scopes.unattributed and foreign else result


def _count(
    cost: _Cost,
    by_worker: "defaultdict[str, float]",
    shape: WorkerShape,
    prediction: Prediction,
    seconds: float,
) -> None:
    by_worker[shape.name] += seconds
    cost.workers.add(shape.name)
    cost.nanousd += prediction.nanousd(shape.price_nanousd_per_hour)
    cost.joules += prediction.joules(shape.power_w)
    cost.errors.append(prediction.error)
    cost.samples += prediction.samples


def _planned(step: StepRun, cost: _Cost, missing: str) -> PlannedStep:
    known = len(step.parts)
    done = sum(p.result is not None for p in step.parts.values())
    expect = {
        StepState.COMPLETED: "hit",
        StepState.SKIPPED: "skip",
    }.get(step.state, "run" if step.parts else "unknown")
    detail = ""
    if expect == "run":
        detail = missing
    elif expect == "unknown":
        detail = "its inputs are not known before the steps above have run"
    return PlannedStep(
        path=step.plan.path,
        engine=step.plan.engine,
        expect=expect,
        actions=known,
        hits=done,
        batches=len(cost.signatures),
        nanousd=cost.nanousd,
        seconds=cost.seconds,
        joules=cost.joules,
        worker=", ".join(sorted(cost.workers)),
        sure="" if expect in ("hit", "skip") else ("measured" if cost.samples else GUESS),
        detail=detail,
    )


def _longest_path(run: Run, seconds: dict[str, float]) -> float:
    finish: dict[str, float] = {}
    for step in run.plan.steps:
        before = max((finish.get(p, 0.0) for p in step.parents()), default=0.0)
        finish[step.path] = before + seconds.get(step.path, 0.0)
    return max(finish.values(), default=0.0)


def _refusals(compiled: Compiled, nanousd: int, seconds: float) -> tuple[str, ...]:
    plan, found = compiled.plan, []
    if plan.budget_nanousd and nanousd > plan.budget_nanousd:
        found.append(
            f"spec.budgetUsd: about {usd_text(nanousd)} are expected, the budget is "
            f"{usd_text(plan.budget_nanousd)}; raise it or ask for less"
        )
    if plan.deadline_s and seconds > plan.deadline_s:
        found.append(
            f"spec.deadline: about {seconds:.0f} s are expected, the deadline is "
            f"{plan.deadline_s:.0f} s after creation; raise it or add workers"
        )
    return tuple(found)
