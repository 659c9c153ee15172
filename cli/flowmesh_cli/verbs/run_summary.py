"""The summary of ``fmesh run``: outputs, costs, and which runs shared results."""

from collections.abc import Sequence

from flowmesh_api.v1.enums import Phase
from flowmesh_api.v1.fabric import CachePolicy, FabricStatus
from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import all_runs
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.outputs import read_heads
from flowmesh_cli.verbs.receipts import read_receipt, sharing, show_sharing
from flowmesh_cli.views import formatting
from flowmesh_cli.views.rows import show_rows
from flowmesh_cli.views.runs import (
    show_fabric,
    show_failure,
    show_metrics,
    show_outputs,
    show_runs,
)
from flowmesh_cli.views.steps import title, titles_of
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.sharing.namespace_selection import selects

HEAD = 3
"""Rows of each data set that are shown after a run."""


def show_end(terminal: Terminal, http: ApiClient, runs: Sequence[RunStatus]) -> None:
    """Writes the result of ``fmesh run``; failures go last, to standard error."""
    fabric = http.where_allowed("/v1/fabric", FabricStatus)
    if terminal.as_json:
        terminal.answer({"runs": list(runs), "fabric": fabric})
    else:
        show_runs(terminal, runs)
        for run in runs:
            if any(output is not None for output in run.outputs.values()):
                terminal.text(f"{title(run)}  (fmesh outputs {run.uid} --download DIR)")
                show_outputs(terminal, run)
                _show_heads(terminal, http, run)
        show_metrics(terminal, runs)
        _show_sharing(terminal, http, runs)
        show_fabric(terminal, fabric)
    for run in runs:
        if run.phase == Phase.FAILED:
            show_failure(terminal, run)


def _show_heads(terminal: Terminal, http: ApiClient, run: RunStatus) -> None:
    """Writes the first rows of a run's data sets, as far as they can be read."""
    try:
        heads = read_heads(http, run.uid, run.outputs, HEAD)
    except FlowMeshError as e:  # the run has ended well, whatever shows it
        terminal.note(f"its rows cannot be shown: {e}")
        return
    for name, rows in heads.items():
        terminal.text(f"first rows of {name}:")
        show_rows(terminal, rows)


def _show_sharing(terminal: Terminal, http: ApiClient, runs: Sequence[RunStatus]) -> None:
    ran, hits = sum(run.executed for run in runs), sum(run.hits for run in runs)
    merged = sum(step.in_flight for run in runs for step in run.steps)
    if not hits:
        if len(runs) > 1:
            terminal.text(f"nothing was shared: {formatting.count(ran, 'action')} ran")
        return
    if ran or merged:
        terminal.text(
            f"shared: {formatting.count(ran, 'action')} ran in place of {ran + hits}; "
            f"{hits - merged} had been published, {merged} were running for another run"
        )
    else:  # steps whose results are all there are found as a whole: actions are not counted
        terminal.text("shared: nothing ran, as all results had been published")
    receipts = [read_receipt(http, run.uid) for run in runs]
    show_sharing(terminal, sharing(receipts, titles_of(all_runs(http))))
    for policy in http.where_allowed("/v1/policies", list[CachePolicy]) or ():
        tenants = [run.namespace for run in runs if selects(policy, run.namespace, {})]
        if len(set(tenants)) > 1:
            terminal.text(
                f"  because cache policy {policy.name} lets {', '.join(dict.fromkeys(tenants))} "
                f"share ({policy.scope.value}{' ' + policy.group if policy.group else ''})"
            )
