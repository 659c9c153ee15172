"""``fmesh status``, ``cancel``, ``amend`` and ``logs``."""

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowmesh_cli import figures
from flowmesh_cli.attaching import look
from flowmesh_cli.client import Http
from flowmesh_cli.exits import ExitCode
from flowmesh_cli.failing import CliError
from flowmesh_cli.following import OVER, POLL_S
from flowmesh_cli.naming import all_runs, find_run
from flowmesh_cli.show.runs import show_fabric, show_run, show_summaries
from flowmesh_cli.terminal import Terminal
from flowmesh_core.protocol.messages import LogLine
from flowmesh_core.status.view import FabricStatus, RunStatus


def show_status(run: str, *, every: bool, state_dir: Path | None, as_json: bool) -> None:
    """Shows a run, or a line for each."""
    terminal = Terminal(as_json=as_json)
    with look(state_dir) as http:
        if every:
            runs = all_runs(http)
            fabric = http.get("/v1/fabric", FabricStatus)
            if as_json:
                terminal.answer({"runs": runs, "fabric": fabric})
            else:
                show_summaries(terminal, runs)
                show_fabric(terminal, fabric)
            return
        status = http.get(f"/v1/runs/{find_run(http, run)}", RunStatus)
    if as_json:
        terminal.answer(status)
    else:
        show_run(terminal, status, time.time())


def cancel_run(run: str, *, reason: str, state_dir: Path | None, as_json: bool) -> None:
    """Cancels a run and waits until it has ended."""
    terminal = Terminal(as_json=as_json)
    with look(state_dir) as http:
        uid = find_run(http, run)
        status = http.get(f"/v1/runs/{uid}", RunStatus)
        if status.phase in OVER:
            raise CliError(f"{uid} has ended already: {status.phase}", ExitCode.NOT_FOUND)
        document = {"reason": reason or "cancelled by the user"}
        http.call("POST", f"/v1/runs/{uid}/cancel", document=document)
        while status.phase not in OVER:
            time.sleep(POLL_S)
            status = http.get(f"/v1/runs/{uid}", RunStatus)
    if as_json:
        terminal.answer(status)
    else:
        terminal.text(f"{uid} {status.phase}")


def amend_run(
    run: str, *, changes: Mapping[str, Any], state_dir: Path | None, as_json: bool
) -> None:
    """Changes what may be changed of a run."""
    terminal = Terminal(as_json=as_json)
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise CliError(
            "nothing to change",
            ExitCode.USAGE,
            remedy="give --priority, --budget-usd, --deadline, --suspend or --resume",
        )
    with look(state_dir) as http:
        uid = find_run(http, run)
        http.call("POST", f"/v1/runs/{uid}/amend", document=given)
        status = http.get(f"/v1/runs/{uid}", RunStatus)
    if as_json:
        terminal.answer(status)
    else:
        terminal.text(f"{uid} {', '.join(f'{name}: {value}' for name, value in given.items())}")


def show_logs(run: str, *, step: str, follow: bool, state_dir: Path | None, as_json: bool) -> None:
    """Shows what engines printed; of a run whose fabric has gone, the end of a failed step's."""
    terminal = Terminal(as_json=as_json)
    with look(state_dir) as http:
        uid = find_run(http, run)
        shown: Counter[tuple[str, float, str]] = Counter()
        while True:
            status = http.get(f"/v1/runs/{uid}", RunStatus)
            told: Counter[tuple[str, float, str]] = Counter()
            for line in _lines(http, uid, step, status):
                key = (line.attempt_id, line.time_s, line.text)
                told[key] += 1
                if told[key] <= shown[key]:
                    continue
                shown[key] += 1
                if as_json:
                    terminal.line(line)
                else:
                    terminal.text(f"{figures.clock(line.time_s)} {line.text}")
            if not follow or status.phase in OVER:
                break
            time.sleep(POLL_S)
    if not shown and not as_json:
        terminal.note("nothing is kept: logs live as long as the fabric does")


def _lines(http: Http, uid: str, step: str, status: RunStatus) -> list[LogLine]:
    found = http.get(f"/v1/runs/{uid}/logs", list[LogLine], step=step)
    if found or (step and step != status.failed_step):
        return found
    return [LogLine("", status.ended_s, text) for text in status.log]
