"""``fmesh sql``: asks the outputs of a run with SQL, on this machine."""

from decimal import Decimal
from typing import Any

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting
from flowmesh_cli.views.rows import show_rows
from flowmesh_cli.views.runs import describe_output
from flowmesh_sdk import sql
from flowmesh_sdk.errors import FlowMeshError
from flowmesh_sdk.rows import Rows
from flowmesh_sdk.tables import table_rows


def query_outputs(query: str, *, run: str, limit: int, place: Target, as_json: bool) -> None:
    """Shows the rows of a query over a run's data sets; each is a table with its output's name.

    Raises:
        CliError: the query is wrong, or names no output of the run.
    """
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        uid = find_run(http, run)
        status = http.get(f"/v1/runs/{uid}", RunStatus)
        names = [n for n, o in status.outputs.items() if o and o.get("kind") == "dataset"]
        if not names:
            raise _no_data_set(status)
        try:
            rows, total = _ask(http, uid, names, query, limit)
        except sql.UnknownTableError as e:
            raise _unknown_table(e, status, names, is_latest=not run) from e
        except FlowMeshError as e:
            raise CliError(e.message, ExitCode.USAGE, where=e.where, remedy=e.remedy) from e
    if as_json:
        terminal.answer({"uid": uid, "rows": rows, "count": total})
        return
    show_rows(terminal, rows, columns=list(rows[0]) if rows else ())
    if total > len(rows):
        terminal.note(
            f"the first {len(rows)} of {formatting.count(total, 'row')}; --limit N shows more"
        )
    elif not rows:
        terminal.note("no row")


def _no_data_set(status: RunStatus) -> CliError:
    outputs = [f"{name}: {describe_output(o, status)}" for name, o in status.outputs.items()]
    if status.phase in ENDED_PHASES:
        remedy = f"it has ended; its outputs: {', '.join(outputs) or 'none'}"
    else:
        remedy = f"outputs appear when their steps have ended: `fmesh status {status.uid}`"
    message = "the run has no data set among its outputs"
    return CliError(message, ExitCode.NOT_FOUND, where=status.uid, remedy=remedy)


def _unknown_table(
    error: sql.UnknownTableError, status: RunStatus, names: list[str], *, is_latest: bool
) -> CliError:
    """Returns what the run has instead: the tables, or an output that is not a table."""
    message, where, uid = error.message, error.where, status.uid
    if error.name in status.outputs:
        output = status.outputs[error.name]
        kind = f"{output['kind']}, not rows" if output else describe_output(output, status)
        message = f"output {error.name!r} is {kind}"
        remedy = f"`fmesh outputs {uid}/{error.name}` shows it"
    else:
        asked = f"{uid}, the latest run," if is_latest else uid
        remedy = f"the tables of {asked} are {sql.quoted(names)}"
        remedy += "; --run RUN asks another" if is_latest else ""
    return CliError(message, ExitCode.USAGE, where=where, remedy=remedy)


def _ask(
    http: ApiClient, uid: str, names: list[str], query: str, limit: int
) -> tuple[list[dict[str, Any]], int]:
    outputs = {n: Rows(http, f"/v1/runs/{uid}/outputs/{n}", count=None) for n in names}
    table = sql.query(query, {name: rows.to_arrow for name, rows in outputs.items()})
    rows = table_rows(table.slice(0, limit))
    return [{name: _plain(value) for name, value in row.items()} for row in rows], table.num_rows


def _plain(value: Any) -> Any:
    """Returns a number for a decimal, which is what DuckDB makes of the sum of integers."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
