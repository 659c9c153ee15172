"""Extracts the record of a run from its plan, ledger and status."""

from collections.abc import Iterable

from msgspec.structs import replace

from flowmesh_api.v1.runs import RunStatus
from flowmesh_api.v1.trace import (
    AttemptRecord,
    EngineRecord,
    PartRecord,
    RecordedRun,
    StepDependency,
    StepRecord,
)
from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.graph.plan import Plan, StepPlan, StepSource
from flowmesh_core.sharing.scopes import ScopePlan

MADE = frozenset({"published", "adopted", "shared"})
"""Outcomes of attempts that gave a run its result."""


def recorded(
    plan: Plan, scopes: ScopePlan, lines: Iterable[Line], status: RunStatus, catalog: Catalog
) -> RecordedRun:
    """Returns the record of a run.

    Args:
        plan: what was run.
        scopes: where it published and looked.
        lines: its ledger.
        status: its present status, or that at its end.
        catalog: the contracts that the plan may use.
    """
    ledger = list(lines)
    states = {s.path: s.state for s in status.steps}
    contracts = {s.engine: c for s in plan.steps if (c := _contract(catalog, s)) is not None}
    return RecordedRun(
        run=status.uid,
        tenant=status.namespace,
        phase=status.phase,
        created_s=status.created_s,
        ended_s=status.ended_s,
        publish=scopes.publish,
        lookup=scopes.lookup,
        private=scopes.private,
        weights=plan.weights,
        priority=status.priority,
        budget_nanousd=status.budget_nanousd,
        deadline_s=status.deadline_s,
        paid_nanousd=status.paid_nanousd,
        joules=status.joules,
        engines=tuple(_engine(c) for c in contracts.values()),
        steps=tuple(_step(s, contracts, states.get(s.path, "")) for s in plan.steps),
        parts=_parts(ledger),
        attempts=tuple(_attempt(x) for x in ledger if isinstance(x, AttemptLine)),
    )


def _contract(catalog: Catalog, step: StepPlan) -> EngineContract | None:
    found = catalog.pinned(step.engine, step.contract, step.implementation, step.minor)
    return found or catalog.newest(step.engine)


def _engine(c: EngineContract) -> EngineRecord:
    return EngineRecord(
        c.name,
        c.version,
        c.implementation,
        work_unit=c.work_unit,
        capacity=c.capacity,
        accelerator=c.needs_gpu_class == "accelerator",
        memory_mib=c.base_memory_mib,
    )


def _step(step: StepPlan, contracts: dict[str, EngineContract], state: str) -> StepRecord:
    contract = contracts.get(step.engine)
    row_wise = contract.row_wise if contract else ""
    by_rows = {
        s.step
        for e in step.edges
        if e.port == row_wise and len(e.sources) == 1
        for s in e.sources
        if isinstance(s, StepSource)
    }
    return StepRecord(
        step=step.path,
        engine=step.engine,
        contract=step.contract,
        implementation=step.implementation,
        state=state,
        after=tuple(StepDependency(p, p in by_rows) for p in step.parents()),
        memory_mib=step.resources.memory_mib,
        tensor_parallel=step.resources.tensor_parallel,
        reuse=step.cache.reuse,
    )


def _parts(lines: list[Line]) -> tuple[PartRecord, ...]:
    """The last record of every part: a hit, or the attempt that made it."""
    found: dict[tuple[str, int], PartRecord] = {}
    for line in lines:
        if isinstance(line, AttemptLine) and line.outcome in MADE:
            part = PartRecord(line.step, line.chunk, line.action_id)
            found.setdefault((line.step, line.chunk), part)
        elif isinstance(line, HitLine):
            found[line.step, line.chunk] = PartRecord(
                line.step, line.chunk, line.action_id, line.hit, line.producer, line.saved_nanousd
            )
    return tuple(found.values())


def _attempt(line: AttemptLine) -> AttemptRecord:
    made = AttemptRecord(
        step=line.step,
        chunk=line.chunk,
        action=line.action_id,
        attempt=line.attempt_id,
        outcome=line.outcome,
        ended_s=line.time_s,
        bill_nanousd=line.bill_nanousd,
        share_nanousd=line.share_nanousd,
        units=line.units,
        tokens_in=line.tokens_in,
        tokens_out=line.tokens_out,
        run_s=line.run_s,
        load_s=line.load_s,
        joules=line.joules,
        sharers=line.sharers,
        worker=line.worker,
    )
    ran = line.ran
    if ran is None:
        return made
    return replace(
        made,
        fetch_s=ran.fetch_s,
        put_s=ran.put_s,
        pool=ran.pool,
        device_class=ran.device_class,
        devices=ran.devices,
        device_memory_mib=ran.device_memory_mib,
        price_nanousd_per_hour=ran.price_nanousd_per_hour,
        signature=ran.signature,
        memory_mib=ran.memory_mib,
        component_bytes=ran.component_bytes,
        assigned_s=ran.assigned_s,
    )
