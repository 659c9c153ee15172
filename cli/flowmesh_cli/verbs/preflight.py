"""Refuses work that no local worker could run, before ``fmesh run`` starts a fabric.

It checks only where the command would start the fabric: the workers of a running one may belong to
another installation.
"""

from flowmesh_cli.attach import attach, running
from flowmesh_cli.connection.state_dir import state_dir
from flowmesh_cli.connection.target import Target
from flowmesh_cli.local.capabilities import missing_engines, refuse_missing, refuse_unhonoured
from flowmesh_cli.local.options import LocalOptions
from flowmesh_cli.verbs.forecast import forecast
from flowmesh_cli.workflows.sources import Source, Sources
from flowmesh_core.graph.plan import Plan, StepPlan

_NEEDS_NO_WORKER = ("hit", "skip")


def refuse_what_no_worker_here_can_run(sources: Sources, place: Target) -> None:
    """Refuses workflows that the workers of this installation cannot run.

    Steps whose results are published need no worker: a forecast on the folder finds them.

    Raises:
        FilesError: no worker here serves a step's identity fields.
        CliError: a step's engine is not installed (``REFUSED``).
    """
    state = state_dir(place.state_dir)
    if place.is_cluster or (state.exists() and running(state) is not None):
        return
    plans = [_plan_of(source) for source in sources.workflows]
    refuse_unhonoured(sources.workflows, plans)
    for source, plan in zip(sources.workflows, plans, strict=True):
        steps = missing_engines([plan])
        if steps and state.exists():
            steps = _not_published(source, steps, place)
        refuse_missing(source.title, steps)


def _plan_of(source: Source) -> Plan:
    assert source.plan is not None, "compiled by `checked`"
    return source.plan


def _not_published(source: Source, steps: list[StepPlan], place: Target) -> list[StepPlan]:
    with attach(place, LocalOptions("read")) as session:
        if not session.is_owner:
            return []  # another process serves the folder by now
        found = forecast(session.http, source)
    done = {s.path for s in found.steps if s.expect in _NEEDS_NO_WORKER}
    return [s for s in steps if s.path not in done]
