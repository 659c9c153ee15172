"""``fmesh sql``: asks the outputs of a run with SQL, on this machine."""

from decimal import Decimal
from typing import Any

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
            raise CliError(
                "the run has no data set among its outputs",
                ExitCode.NOT_FOUND,
                where=uid,
                remedy="outputs appear when their steps have ended: `fmesh status`",
            )
        rows, total = _ask(http, uid, names, query, limit)
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


def _ask(
    http: ApiClient, uid: str, names: list[str], query: str, limit: int
) -> tuple[list[dict[str, Any]], int]:
    outputs = {n: Rows(http, f"/v1/runs/{uid}/outputs/{n}", count=None) for n in names}
    try:
        table = sql.query(query, {name: rows.to_arrow for name, rows in outputs.items()})
    except FlowMeshError as e:
        raise CliError(e.message, ExitCode.USAGE, where=e.where, remedy=e.remedy) from e
    rows = table_rows(table.slice(0, limit))
    return [{name: _plain(value) for name, value in row.items()} for row in rows], table.num_rows


def _plain(value: Any) -> Any:
    """Returns a number for a decimal, which is what DuckDB makes of the sum of integers."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
