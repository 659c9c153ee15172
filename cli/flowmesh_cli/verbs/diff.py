"""``fmesh diff``: what two runs did and gave differently."""

from collections.abc import Mapping
from typing import Any

import msgspec

from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.run_lookup import find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting
from flowmesh_cli.views.runs import describe_output

_MISSING = "-"


class Difference(msgspec.Struct, frozen=True):
    """A step, output or metric of two runs.

    Attributes:
        what: such as ``step sample``, ``output answers`` or ``accuracy.count``.
        first, second: what each run has; ``-`` where it has none.
    """

    what: str
    first: str
    second: str


def show_diff(first: str, second: str, *, place: Target, as_json: bool) -> None:
    """Shows how two runs differ: steps, outputs by their content, metrics, and what they took.

    Args:
        first: a run as the user named it.
        second: the other one.
        place: the fabric.
        as_json: whether to answer in JSON.
    """
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        uids = [find_run(http, name) for name in (first, second)]
        one, other = (http.get(f"/v1/runs/{uid}", RunStatus) for uid in uids)
    found = differences(one, other)
    if as_json:
        terminal.answer({"runs": uids, "differences": found})
        return
    rows = [[d.what, d.first, d.second] for d in [*found, *_figures(one, other)]]
    terminal.table(["", one.uid, other.uid], rows, right=[one.uid, other.uid])
    if not found:
        terminal.text("steps, outputs and metrics are the same")


def differences(one: RunStatus, other: RunStatus) -> list[Difference]:
    """Returns the steps, outputs and metrics of two runs that are not the same."""
    return [
        *_unequal(_steps(one), _steps(other)),
        *_unequal(_contents(one), _contents(other)),
        *_unequal(_metrics(one), _metrics(other)),
    ]


def _steps(run: RunStatus) -> dict[str, str]:
    return {f"step {step.path}": f"{step.engine} {step.state.lower()}" for step in run.steps}


def _unequal(one: Mapping[str, str], other: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(name, one.get(name, _MISSING), other.get(name, _MISSING))
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name)
    ]


def _contents(run: RunStatus) -> dict[str, str]:
    """Returns each output but metrics: what it is, and the beginning of its digest."""
    return {
        f"output {name}": f"{describe_output(output, run)}, {_digest(output)}"
        for name, output in run.outputs.items()
        if output and not output.get("value")
    }


def _digest(output: Mapping[str, Any]) -> str:
    return str(output.get("digest", ""))[:12]


def _metrics(run: RunStatus) -> dict[str, str]:
    return {
        f"{name}.{key}": f"{value:.6g}" if isinstance(value, float) else str(value)
        for name, output in run.outputs.items()
        for key, value in ((output or {}).get("value") or {}).items()
    }


def _figures(one: RunStatus, other: RunStatus) -> list[Difference]:
    """Returns what both took, equal or not: it differs with the load of the fabric."""

    def took(run: RunStatus) -> str:
        return formatting.seconds(run.ended_s - run.created_s) if run.ended_s else "has not ended"

    return [
        Difference("took", took(one), took(other)),
        Difference("actions run", str(one.executed), str(other.executed)),
        Difference("hits", str(one.hits), str(other.hits)),
        Difference("paid", formatting.usd(one.paid_nanousd), formatting.usd(other.paid_nanousd)),
    ]
