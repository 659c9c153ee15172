"""Forecasts a workflow for ``fmesh plan``, without running anything.

A scratch machine is given the plan and looks up results in the real store, as the real machine
would. The outputs of a hit identify the next actions. The learned cost model predicts what the
remaining actions would cost on the connected workers, or on those that other pools would start
(``step_costs``), and what those would that are not known before others have run.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf

from flowmesh_api.v1.enums import StepState
from flowmesh_api.v1.plan import GUESS, NOTHING, Forecast, PlannedStep
from flowmesh_control.errors import PlanRefusedError, UnplaceableError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.ports import ConditionEvaluator
from flowmesh_control.queries.resolved_sources import Pins, fetch_bytes, with_pins
from flowmesh_control.queries.step_costs import OpenFleet, StepCost, StepCosts
from flowmesh_control.queries.unplaceable import WorkerOffer, step_places, unplaceable_steps
from flowmesh_control.runs.admission import Compiled
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.machine.commands import Command, EvaluateCondition, LookUp, Publish
from flowmesh_core.machine.dispatch import SETTLED_S
from flowmesh_core.machine.events import ConditionEvaluated, LookedUp, Published, Submitted
from flowmesh_core.machine.machine import Machine
from flowmesh_core.machine.model import Run, StepPart, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.units import Digest, usd_text
from flowmesh_store.action_cache import ActionCache

PLAN_UID = "plan"
_NO_PINS: Pins = {}
CHECK_S = 10.0
"""A workflow whose forecast takes longer is accepted unchecked: its run ends at its terms."""
_SHARED = "the same actions as in steps above"


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
        """Refuses a workflow that no worker can ever run, or that exceeds its budget or deadline.

        Raises:
            UnplaceableError: with every reason; one is a step that no worker can run.
            PlanRefusedError: with every reason.
        """
        plan, unplaceable = compiled.plan, self._unplaceable(compiled)
        if not (plan.budget_nanousd or plan.deadline_s or unplaceable):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_S):
                forecast = await self.forecast(compiled)
                if forecast.refusals:
                    places = not set(unplaceable).isdisjoint(forecast.refusals)
                    kind = UnplaceableError if places else PlanRefusedError
                    raise kind("; ".join(forecast.refusals), where=forecast.name)

    async def forecast(self, compiled: Compiled, pins: Pins = _NO_PINS) -> Forecast:
        """Returns the expected hits, cost, time and energy of a compiled workflow.

        Args:
            compiled: the workflow.
            pins: what is known of sources that the run will resolve.
        """
        compiled = with_pins(compiled, pins) if pins else compiled
        to_fetch = {f"inputs.{name}": fetch_bytes(pin) for name, pin in pins.items()}
        scratch = await self._walk(compiled)
        run = scratch.runs[PLAN_UID]
        plan = compiled.plan
        predicted = StepCosts(self._state, scratch, run, self._open_fleet(plan.namespace))
        costs = predicted.all()
        busy = predicted.busy.values()
        seconds = max(
            _longest_path(run, {path: c.seconds for path, c in costs.items()}),
            max((r.seconds for r in busy), default=0.0),
        )
        low_seconds = max(
            _longest_path(run, {path: c.low_s for path, c in costs.items()}),
            max((r.low_s for r in busy), default=0.0),
        )
        high_seconds = max(
            _longest_path(run, {path: c.high_s for path, c in costs.items()}),
            max((r.high_s for r in busy), default=0.0),
        )
        # Steps beside each other share the price of their worker.
        price = predicted.nanousd_per_s
        paid = sum(c.nanousd for c in costs.values())
        share = min(1.0, price * seconds / paid) if paid else 1.0
        low_nanousd = round(min(sum(c.low_nanousd for c in costs.values()), price * low_seconds))
        high_nanousd = round(min(sum(c.high_nanousd for c in costs.values()), price * high_seconds))
        steps = [
            _planned(step, cost, self._missing(step, cost, plan.namespace), to_fetch, share)
            for step, cost in zip(run.steps.values(), costs.values(), strict=True)
        ]
        nanousd = sum(s.nanousd for s in steps)
        bounded = not any(c.is_unbounded for c in costs.values())
        parts = _distinct_parts(run)
        errors = [e for c in costs.values() for e in c.errors]
        measured = [s for s in steps if s.sure != GUESS]
        return Forecast(
            name=plan.name,
            namespace=plan.namespace,
            steps=tuple(steps),
            actions=len(parts),
            hits=sum(p.result is not None for p in parts),
            batches=sum(s.batches for s in steps),
            nanousd=nanousd,
            seconds=seconds,
            joules=sum(s.joules for s in steps),
            error=sum(errors) / len(errors) if errors else 0.0,
            unknown=sum(s.expect == "unknown" for s in steps),
            scopes=compiled.scopes.lookup,
            refusals=(
                *self._unplaceable(compiled, [s.plan.path for s in run.steps.values() if s.ended]),
                *_refusals(compiled, low_nanousd, low_seconds),
            ),
            unmeasured=len(steps) - len(measured),
            least_nanousd=sum(s.nanousd for s in measured),
            least_seconds=_longest_path(run, {s.path: s.seconds for s in measured}),
            least_joules=sum(s.joules for s in measured),
            low_nanousd=low_nanousd,
            high_nanousd=high_nanousd * bounded,
            low_seconds=low_seconds,
            high_seconds=high_seconds * bounded,
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

    def _open_fleet(self, namespace: str) -> OpenFleet:
        """Returns workers and pools, without those reserved for other namespaces."""
        reserved = self._state.reserved_pools or {}
        connected = [w.shape for _, w in sorted(self._state.workers.items())]
        present = {shape.pool for shape in connected}
        startable = [p.shape for p in self._pools() if p.most and p.name not in present]

        def usable(shapes: Sequence[WorkerShape]) -> list[WorkerShape]:
            return [s for s in shapes if namespace in reserved.get(s.pool, (namespace,))]

        return OpenFleet(usable(connected), usable(startable))

    def _unplaceable(self, compiled: Compiled, ended: Collection[str] = ()) -> list[str]:
        """Returns the fields that no worker can ever meet, with what the workers have."""
        found = unplaceable_steps(
            compiled.plan,
            self._state.catalog,
            self._offers(),
            step_places(compiled.document),
            ended=frozenset(ended),
        )
        problems = dict.fromkeys(p for of_step in found.values() for p in of_step)
        return [f"{problem.path}: {problem.message}" for problem in problems]

    def _offers(self) -> list[WorkerOffer]:
        """Returns what all workers are and pools will start; nothing while others may join."""
        workers, pools = self._state.workers.values(), self._pools()
        newest_s = max((w.started_s for w in workers), default=inf)
        settled = self._state.settings.unplaceable_after_s and self._clock() - newest_s > SETTLED_S
        if not pools and not settled:
            return []
        return [*map(WorkerOffer.of_pool, pools), *(WorkerOffer(w.shape) for w in workers)]

    def _missing(self, step: StepRun, cost: StepCost, namespace: str) -> str:
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


def _answer(c: LookUp, result: ActionResult | None) -> LookedUp:
    return LookedUp(c.key, result, c.scopes, c.not_before_s, c.min_trust)


def _counted(compiled: Compiled, result: ActionResult) -> ActionResult | None:
    """Returns a result that the forecast may count as a hit.

    Where results are shared without names, a forecast must not tell what other namespaces ran.
    """
    foreign = result.namespace != compiled.plan.namespace
    return None if compiled.scopes.unattributed and foreign else result


def _distinct_parts(run: Run) -> list[StepPart]:
    """Returns the parts of all steps; of those that are one action the last."""
    parts = [part for step in run.steps.values() for part in step.parts.values()]
    by_key = {part.key: part for part in parts if part.key is not None}
    return [*by_key.values(), *(part for part in parts if part.key is None)]


def _planned(
    step: StepRun, cost: StepCost, missing: str, to_fetch: Mapping[str, int], share: float
) -> PlannedStep:
    known = len(step.parts)
    done = sum(p.result is not None for p in step.parts.values())
    expect = {
        StepState.COMPLETED: "hit",
        StepState.SKIPPED: "skip",
    }.get(step.state, "run" if step.parts else "unknown")
    detail = ""
    if expect == "run":
        detail = missing or _SHARED * cost.is_shared
    elif expect == "unknown":
        detail = "its inputs are not known before the steps above have run"
    return PlannedStep(
        path=step.plan.path,
        engine=step.plan.engine,
        expect=expect,
        actions=known,
        hits=done,
        batches=len(cost.signatures),
        nanousd=round(cost.nanousd * share),
        seconds=cost.seconds,
        joules=cost.joules * share if cost.joules else NOTHING,
        worker=", ".join(sorted(cost.workers)),
        sure="" if expect in ("hit", "skip") else ("measured" if cost.samples else GUESS),
        detail=detail,
        fetch_bytes=to_fetch.get(step.plan.path, 0) if expect == "run" else 0,
    )


def _longest_path(run: Run, seconds: dict[str, float]) -> float:
    finish: dict[str, float] = {}
    for step in run.plan.steps:
        before = max((finish.get(p, 0.0) for p in step.parents()), default=0.0)
        finish[step.path] = before + seconds.get(step.path, 0.0)
    return max(finish.values(), default=0.0)


def _refusals(compiled: Compiled, nanousd: int, seconds: float) -> tuple[str, ...]:
    """Returns why a budget or a deadline cannot be met, by the lower ends of the ranges."""
    plan, found = compiled.plan, []
    if plan.budget_nanousd and nanousd > plan.budget_nanousd:
        found.append(
            f"spec.budgetUsd: expected to cost at least {usd_text(nanousd)}, and the budget is "
            f"{usd_text(plan.budget_nanousd)}; raise it or ask for less"
        )
    if plan.deadline_s and seconds > plan.deadline_s:
        found.append(
            f"spec.deadline: expected to take at least {seconds:.0f} s, and the deadline is "
            f"{plan.deadline_s:.0f} s after creation; raise it or add workers"
        )
    return tuple(found)
