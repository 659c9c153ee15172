"""``fmesh lineage`` and ``fmesh export``: where artifacts come from, for people and programs."""

import sys
from pathlib import Path
from typing import Any

from flowmesh_cli.attaching import look
from flowmesh_cli.client import Http
from flowmesh_cli.exits import ExitCode
from flowmesh_cli.failing import CliError
from flowmesh_cli.naming import all_runs, find_run
from flowmesh_cli.nearness import nearest
from flowmesh_cli.place import Place
from flowmesh_cli.show.lineage import show_origins, show_walk
from flowmesh_cli.terminal import Terminal
from flowmesh_control.lineage import Direction, Made, Walk
from flowmesh_core.lineage.rows import RowOrigins
from flowmesh_core.status.view import RunStatus


def show_lineage(artifact: str, *, down: bool, depth: int, place: Place, as_json: bool) -> None:
    """Follows an artifact up or down."""
    terminal = Terminal(as_json=as_json)
    direction = Direction.DOWN if down else Direction.UP
    with look(place) as http:
        name = _artifact(http, artifact)
        walk = http.get(f"/v1/lineage/{name}", Walk, direction=direction.value, depth=depth)
    if as_json:
        terminal.answer(walk)
    else:
        show_walk(terminal, walk)


def show_rows(artifact: str, *, place: Place, as_json: bool) -> None:
    """Says which rows the chunks of a data set came from."""
    terminal = Terminal(as_json=as_json)
    with look(place) as http:
        found = http.get(f"/v1/lineage/{_artifact(http, artifact)}/rows", RowOrigins)
    if as_json:
        terminal.answer(found)
    else:
        show_origins(terminal, found)


def export_openlineage(run: str, *, out: Path | None, place: Place) -> None:
    """Writes a run's events."""
    with look(place) as http:
        events = http.call("GET", f"/v1/runs/{find_run(http, run)}/openlineage")
    if out is None:
        sys.stdout.buffer.write(events)
        sys.stdout.buffer.flush()
        return
    try:
        out.write_bytes(events)
    except OSError as e:
        raise CliError(f"cannot be written: {e.strerror}", ExitCode.USAGE, where=str(out)) from e
    count = len(events.splitlines())
    Terminal(as_json=False).note(f"{count} events -> {out}")


def _artifact(http: Http, text: str) -> str:
    """A digest or reference as it is; ``RUN/OUTPUT`` and ``RUN/STEP.PORT`` as a digest.

    Raises:
        CliError: the run has no such output.
    """
    run, sign, name = text.rpartition("/")
    if text.startswith("cas:"):
        return text
    if not sign:
        _refuse_run(http, text)
        return text
    uid = find_run(http, run)
    outputs: dict[str, Any] = http.get(f"/v1/runs/{uid}", RunStatus).outputs
    output = outputs.get(name)
    if output and "digest" in output:
        return str(output["digest"])
    if output and "parts" in output:
        raise CliError(
            f"output {name!r} has {len(output['parts'])} parts",
            ExitCode.NOT_FOUND,
            where=uid,
            remedy="name one: " + ", ".join(p["digest"][:12] for p in output["parts"][:8]),
        )
    made = {f"{m.step}.{m.port}": m for m in http.get(f"/v1/runs/{uid}/made", list[Made])}
    if name in made:
        return made[name].digest
    known = [*outputs, *made]
    raise CliError(
        f"no output {name!r}{nearest(name, known)}",
        ExitCode.NOT_FOUND,
        where=uid,
        remedy=f"it has {', '.join(known[:12]) or 'none'}",
    )


def _refuse_run(http: Http, text: str) -> None:
    """A run's name alone is no artifact: says which of its outputs could be meant."""
    uid = next((r.uid for r in reversed(all_runs(http)) if text in (r.uid, r.name)), "")
    if not uid:
        return
    outputs = http.get(f"/v1/runs/{uid}", RunStatus).outputs
    named = ", ".join(f"{text}/{name}" for name in outputs)
    raise CliError(
        f"{text!r} is a run; which artifact of it?",
        ExitCode.NOT_FOUND,
        remedy=f"name {named}" if named else f"name a step's port, {text}/STEP.PORT",
    )
