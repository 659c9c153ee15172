"""Refuses work that no local worker could run, before a command starts a fabric.

It checks only where the command would start the fabric: the workers of a running one may belong to
another installation.
"""

from collections.abc import Sequence
from pathlib import Path

from flowmesh_api.openai.batches import BatchPlan
from flowmesh_cli.attach import attach, running
from flowmesh_cli.connection.state_dir import state_dir
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.capabilities import (
    missing_engines,
    missing_of,
    refuse_missing,
    refuse_unhonoured,
    unplaceable,
)
from flowmesh_cli.local.options import LocalOptions
from flowmesh_cli.verbs.forecast import forecast
from flowmesh_cli.verbs.service_offers import ServiceOffer
from flowmesh_cli.workflows.sources import Source, Sources
from flowmesh_core.graph.plan import Plan

_NEEDS_NO_WORKER = ("hit", "skip")
_IMPORT = "model.import"


def refuse_what_no_worker_here_can_run(sources: Sources, place: Target) -> None:
    """Refuses workflows that the workers of this installation cannot run.

    Steps whose results are published need no worker: a forecast on the folder finds them.

    Raises:
        FilesError: no worker here serves a step's identity fields, or meets its ``resources``.
        CliError: a step's engine is not installed (``REFUSED``).
    """
    state = state_dir(place.state_dir)
    if place.is_cluster or (state.exists() and running(state) is not None):
        return
    plans = [_plan_of(source) for source in sources.workflows]
    refuse_unhonoured(sources.workflows, plans)
    for source, plan in zip(sources.workflows, plans, strict=True):
        engines = {s.path: s.engine for s in missing_engines([plan])}
        problems = unplaceable(source, plan)
        if (engines or problems) and state.exists():
            published = _published(source, place)
            engines = {path: e for path, e in engines.items() if path not in published}
            problems = {path: found for path, found in problems.items() if path not in published}
        refuse_missing(source.title, engines, submit="fmesh submit --cluster FILE")
        if problems:
            every = dict.fromkeys(p for found in problems.values() for p in found)
            raise FilesError(source.lines(every), ExitCode.REFUSED)


def refuse_services_that_no_worker_here_can_run(offers: Sequence[ServiceOffer]) -> None:
    """Refuses services that the workers of this installation cannot run.

    Raises:
        CliError: an engine of a component, or that of an input, is not installed (``REFUSED``).
    """
    for offer in offers:
        spec = offer.document["spec"]
        engines = {
            f"inputs.{name}": _IMPORT
            for name, given in spec.get("inputs", {}).items()
            if "model" in given
        }
        engines |= {n: c["uses"] for n, c in spec["components"].items() if c.get("uses")}
        refuse_missing(offer.entry.model, missing_of(engines))


def refuse_batch_that_no_worker_here_can_run(file: Path, found: BatchPlan) -> None:
    """Refuses a file of requests that the workers of this installation cannot answer.

    Raises:
        CliError: an engine of it is not installed (``REFUSED``).
    """
    steps = found.forecast.steps
    left = {s.path: s.engine for s in steps if s.expect not in _NEEDS_NO_WORKER}
    refuse_missing(str(file), missing_of(left))


def _plan_of(source: Source) -> Plan:
    assert source.plan is not None, "compiled by `checked`"
    return source.plan


def _published(source: Source, place: Target) -> set[str]:
    """Returns the paths of the steps that run nothing; all where another process runs them."""
    with attach(place, LocalOptions("read")) as session:
        if not session.is_owner:
            return {step.path for step in _plan_of(source).steps}
        found = forecast(session.http, source)
    return {s.path for s in found.steps if s.expect in _NEEDS_NO_WORKER}
