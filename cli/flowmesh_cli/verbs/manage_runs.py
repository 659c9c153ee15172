"""``fmesh status``, ``cancel``, ``amend``, ``repin`` and ``resume``."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from flowmesh_api.v1.enums import ENDED_PHASES, Phase
from flowmesh_api.v1.fabric import FabricStatus
from flowmesh_api.v1.quotas import QuotaUsage
from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.attach import query_fabric, unserved_text
from flowmesh_cli.connection.chosen_namespace import chosen_namespace
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import all_runs, find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.follow import POLL_S
from flowmesh_cli.verbs.why import find_step
from flowmesh_cli.views.quota import left_text
from flowmesh_cli.views.runs import show_fabric, show_run, show_summaries
from flowmesh_cli.views.steps import title, titles_of


def show_status(run: str, *, step: str = "", every: bool, place: Target, as_json: bool) -> None:
    """Shows a run, with one of its steps where one is named, or with ``every`` a line per run."""
    terminal = Terminal(as_json=as_json)
    unserved = unserved_text(place)
    with query_fabric(place) as http:
        if every:
            runs = all_runs(http, http.namespace)
            fabric = http.where_allowed("/v1/fabric", FabricStatus)
            if as_json:
                terminal.answer({"runs": runs, "fabric": fabric})
            else:
                show_summaries(terminal, runs)
                show_fabric(terminal, fabric)
                if place.is_cluster:
                    _show_quota(terminal, http, chosen_namespace(http))
            _note_unserved(terminal, unserved, (r.phase for r in runs))
            return
        status = http.get(f"/v1/runs/{find_run(http, run)}", RunStatus)
        if step:
            _, found = find_step(http, status.uid, step)
            status = replace(status, steps=(found,))
        _note_unserved(terminal, unserved, [status.phase])
        if as_json:
            terminal.answer(status)
            return
        show_run(terminal, status, time.time(), titles_of(all_runs(http)))
        if place.is_cluster:
            _show_quota(terminal, http, status.namespace)


def _note_unserved(terminal: Terminal, unserved: str, phases: Iterable[str]) -> None:
    """Writes that no fabric continues the runs, where that is so and some have not ended."""
    if unserved and Phase.RUNNING in phases:
        terminal.note(unserved)


def _show_quota(terminal: Terminal, http: ApiClient, namespace: str) -> None:
    """Writes what is left of a namespace's quota, where it has one and the user may see it."""
    usage = http.where_allowed("/v1/quota", QuotaUsage, namespace=namespace)
    text = left_text(usage) if usage is not None else ""
    if text:
        terminal.text(text)


def cancel_run(run: str, *, reason: str, yes: bool, place: Target, as_json: bool) -> None:
    """Cancels a run and waits until it has ended.

    Raises:
        CliError: the run has already ended.
        DeclinedError: no run was named, and the user did not confirm the latest one.
    """
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        uid = find_run(http, run)
        status = http.get(f"/v1/runs/{uid}", RunStatus)
        if status.phase in ENDED_PHASES:
            raise CliError(
                f"run {uid} has already ended ({status.phase})",
                ExitCode.REFUSED,
            )
        if not (run or yes or as_json) and terminal.can_ask:
            question = f"cancel the latest run, {title(status)} ({uid})?"
            terminal.confirm(question, declined="nothing was cancelled")
        document = {"reason": reason or "cancelled by the user"}
        http.call("POST", f"/v1/runs/{uid}/cancel", document=document)
        while status.phase not in ENDED_PHASES:
            time.sleep(POLL_S)
            status = http.get(f"/v1/runs/{uid}", RunStatus)
    if as_json:
        terminal.answer(status)
    else:
        terminal.text(f"{uid} {status.phase}")


def amend_run(run: str, *, changes: Mapping[str, Any], place: Target, as_json: bool) -> None:
    """Changes a run's priority, budget, deadline or suspension."""
    terminal = Terminal(as_json=as_json)
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise CliError(
            "nothing to change",
            ExitCode.USAGE,
            remedy="give --priority, --budget-usd, --deadline, --suspend or --resume",
        )
    # Imported here: they load the compiler, which `fmesh status` does not need.
    from flowmesh_cli.cluster.gateway import ClusterGateway  # noqa: PLC0415
    from flowmesh_cli.cluster.submission import amend_object  # noqa: PLC0415

    with query_fabric(place) as http:
        uid = find_run(http, run)
        if isinstance(http, ClusterGateway):
            amend_object(http, uid, given)
        else:
            http.call("POST", f"/v1/runs/{uid}/amend", document=given)
        status = http.get(f"/v1/runs/{uid}", RunStatus)
    if as_json:
        terminal.answer(status)
    else:
        terminal.text(f"{uid} {', '.join(f'{name}: {value}' for name, value in given.items())}")


def repin_run(run: str, *, place: Target, as_json: bool) -> None:
    """Moves a run to the newest versions of its engines."""
    from flowmesh_api.v1.runs import RepinnedRun  # noqa: PLC0415 - as in amend_run

    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        found = http.ask("POST", f"/v1/runs/{find_run(http, run)}/repin", RepinnedRun)
    if as_json:
        terminal.answer(found)
        return
    terminal.text(f"{found.uid} continues with the newest versions")
    for engine, versions in found.versions.items():
        terminal.text(f"  {engine} {versions}")


def resume_run(run: str, *, place: Target, as_json: bool) -> None:
    """Continues a run that is suspended because the control plane stopped twice.

    Raises:
        CliError: the run has ended.
    """
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        uid = find_run(http, run)
        phase = http.get(f"/v1/runs/{uid}", RunStatus).phase
        if phase in ENDED_PHASES:
            raise CliError(
                f"the run has already ended ({phase})",
                ExitCode.USAGE,
                where=uid,
                remedy="run its workflow again; published results are reused",
            )
        status = http.ask("POST", f"/v1/runs/{uid}/resume", RunStatus)
    if as_json:
        terminal.answer(status)
    else:
        terminal.text(f"{uid} {status.phase}")
