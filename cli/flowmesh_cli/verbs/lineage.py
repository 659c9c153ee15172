"""``fmesh lineage`` and ``fmesh export openlineage``: how artifacts were made."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowmesh_api.v1.lineage import Direction, LineageWalk, ProducedArtifact, RowOrigins
from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.chosen_namespace import chosen_namespace
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import all_runs, find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.nearness import nearest
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.exported_file import write_export
from flowmesh_cli.views.lineage import show_origins, show_walk

_RUNS_SEARCHED = 5
"""The latest runs, where a name without its run is looked for."""
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class _Named:
    """The artifact that the user named.

    Attributes:
        text: a digest, a prefix of one, or a reference.
        run: uid of the run that has it as ``name``; empty where no run was named.
    """

    text: str
    run: str = ""
    name: str = ""


def require_one_name(artifact: str, more: Sequence[str]) -> None:
    """Checks that the user named one artifact.

    Raises:
        CliError: there are more words, such as a run and one of its outputs.
    """
    if more:
        raise CliError(
            f"{len(more) + 1} names: expected one artifact",
            ExitCode.USAGE,
            where="lineage",
            remedy=f"name {'/'.join([artifact, *more])}, with a slash between run and output",
        )


def show_lineage(
    artifact: str, *, down: bool, depth: int, all_runs: bool, place: Target, as_json: bool
) -> None:
    """Shows an artifact's lineage up or down; upwards from a run's output only that run's."""
    terminal = Terminal(as_json=as_json)
    direction = Direction.DOWN if down else Direction.UP
    with query_fabric(place) as http:
        named = _artifact(http, artifact)
        if named.run and not down and not all_runs:
            path = f"/v1/runs/{named.run}/lineage"
            walk = http.get(path, LineageWalk, name=named.name, depth=depth)
        else:
            path = f"/v1/lineage/{named.text}"
            namespace = chosen_namespace(http)
            walk = http.get(
                path, LineageWalk, direction=direction.value, depth=depth, namespace=namespace
            )
    if as_json:
        terminal.answer(walk)
    else:
        show_walk(terminal, walk, every_way=all_runs)


def show_rows(artifact: str, *, place: Target, as_json: bool) -> None:
    """Shows which rows the chunks of a data set came from."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        named = _artifact(http, artifact)
        if named.run:
            found = http.get(f"/v1/runs/{named.run}/lineage/rows", RowOrigins, name=named.name)
        else:
            namespace = chosen_namespace(http)
            found = http.get(f"/v1/lineage/{named.text}/rows", RowOrigins, namespace=namespace)
    if as_json:
        terminal.answer(found)
    else:
        show_origins(terminal, found)


def export_openlineage(run: str, *, out: Path | None, place: Target) -> None:
    """Writes a run's OpenLineage events."""
    with query_fabric(place) as http:
        events = http.call("GET", f"/v1/runs/{find_run(http, run)}/openlineage")
    write_export(events, out, f"{len(events.splitlines())} events")


def _artifact(http: ApiClient, text: str) -> _Named:
    """Resolves ``RUN/OUTPUT`` and ``RUN/STEP.PORT`` to digests; others stay as they are.

    Raises:
        CliError: the run has no such output, or ``text`` names a run only.
    """
    run, sign, name = text.rpartition("/")
    if text.startswith("cas:"):
        return _Named(text)
    if not sign:
        _refuse_name(http, text)
        return _Named(text)
    uid = find_run(http, run)
    outputs: dict[str, Any] = http.get(f"/v1/runs/{uid}", RunStatus).outputs
    output = outputs.get(name)
    if output and "digest" in output:
        return _Named(str(output["digest"]), uid, name)
    if output and "parts" in output:
        raise CliError(
            f"output {name!r} has {len(output['parts'])} parts",
            ExitCode.NOT_FOUND,
            where=uid,
            remedy="name one: " + ", ".join(p["digest"][:12] for p in output["parts"][:8]),
        )
    made = {
        f"{m.step}.{m.port}": m for m in http.get(f"/v1/runs/{uid}/made", list[ProducedArtifact])
    }
    if name in made:
        return _Named(made[name].digest, uid, name)
    if ports := _ports(made, name):
        raise CliError(
            f"{name!r} is a step: expected one of its ports",
            ExitCode.NOT_FOUND,
            where=uid,
            remedy=f"name {_in_run(uid, ports)}",
        )
    known = [*outputs, *made]
    raise CliError(
        f"no output {name!r}{nearest(name, known)}",
        ExitCode.NOT_FOUND,
        where=uid,
        remedy=f"it has {', '.join(known[:12]) or 'none'}",
    )


def _refuse_name(http: ApiClient, text: str) -> None:
    """Raises an error that says what to write, where the user named a run, or a part of one only.

    A digest, or its beginning, is neither: it is looked up.
    """
    runs = all_runs(http)[::-1]
    is_hex = _HEX.issuperset(text)
    uid = next((r.uid for r in runs if text in (r.uid, r.name)), "")
    if not uid and not is_hex:
        uid = next((r.uid for r in runs if r.uid.startswith(text)), "")
    if uid:
        outputs = http.get(f"/v1/runs/{uid}", RunStatus).outputs
        raise CliError(
            f"{text!r} is a run: expected one of its artifacts",
            ExitCode.NOT_FOUND,
            where="lineage",
            remedy=f"name {_in_run(text, outputs) or f'the port of a step, {text}/STEP.PORT'}",
        )
    for run in () if is_hex else runs[:_RUNS_SEARCHED]:
        _refuse_part(http, run.uid, text)


def _refuse_part(http: ApiClient, uid: str, text: str) -> None:
    """Raises an error where a run has an output, a port or a step of this name."""
    outputs = http.get(f"/v1/runs/{uid}", RunStatus).outputs
    made = [f"{m.step}.{m.port}" for m in http.get(f"/v1/runs/{uid}/made", list[ProducedArtifact])]
    found = [text] if text in outputs or text in made else _ports(made, text)
    if found:
        is_a = "is an output of" if text in outputs else "is made by"
        if text not in found:
            is_a = "is a step of"
        raise CliError(
            f"{text!r} {is_a} run {uid}",
            ExitCode.NOT_FOUND,
            where="lineage",
            remedy=f"name {_in_run(uid, found)}",
        )


def _ports(made: Iterable[str], step: str) -> list[str]:
    """Returns the ports of a step, each as STEP.PORT."""
    return [name for name in made if name.rpartition(".")[0] == step]


def _in_run(run: str, names: Iterable[str]) -> str:
    return ", ".join(f"{run}/{name}" for name in names)
