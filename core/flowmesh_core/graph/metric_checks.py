"""Checks the metrics that conditions read against those that engines report."""

from collections.abc import Collection, Iterable

from flowmesh_core.catalog.contract import Port
from flowmesh_core.catalog.resolved_contract import metrics_of
from flowmesh_core.graph.compile_context import CompileContext, MetricRead
from flowmesh_core.graph.plan import StepPlan, StepSource
from flowmesh_core.spec.suggestions import did_you_mean


def check_metrics(scope: CompileContext, steps: Iterable[StepPlan]) -> None:
    """Reports metrics that a condition reads and no engine reports.

    Args:
        scope: the compilation, whose conditions have been read.
        steps: with their parameters.
    """
    if not scope.metric_reads:
        return
    by_path = {step.path: step for step in steps}
    for read in scope.metric_reads:
        step = by_path.get(read.step)
        if step is None or scope.has_problem(entry := scope.steps[step.name], "with"):
            continue
        port = entry.contract.output_port(read.port) if entry.contract is not None else None
        if port is not None:
            _check(scope, read, step, port)


def _check(scope: CompileContext, read: MetricRead, step: StepPlan, port: Port) -> None:
    names = _names(scope, step, port)
    if names is not None and read.name not in names:
        needed = next((m.with_param for m in port.metrics if m.name == read.name), "")
        hint = f" without {needed}" if needed else did_you_mean(read.name, sorted(names))
        scope.report(read.keys, f"no metric {read.name!r} of {step.engine}{hint}")


def _names(scope: CompileContext, step: StepPlan, port: Port) -> Collection[str] | None:
    """The names of the metrics; None where they are not known at admission."""
    if port.row_of:
        return scope.rows.get(StepSource(step.path, port.row_of))
    return metrics_of(port, step.params)
