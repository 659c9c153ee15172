"""Refuses queries whose result depends on more than their inputs.

Checked when a workflow is admitted, and by the worker, which knows every column. DuckDB itself
parses the query. Functions that it declares to vary (``random()``, ``now()``, ``nextval()`` ...),
tables that are not inputs, table functions that read files or the database's own state, and samples
without a seed are refused before anything runs.
"""

import difflib
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from flowmesh_core.errors import FlowMeshError

Tables = Mapping[str, Collection[str] | None]
"""Columns by table; None where they are not known yet."""

_TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
_CALLED_WITHOUT_BRACKETS = frozenset(
    {
        "current_date",
        "current_time",
        "current_timestamp",
        "localtime",
        "localtimestamp",
        "current_user",
        "current_role",
        "session_user",
        "current_catalog",
        "current_database",
        "current_schema",
        "user",
    }
)
_ALSO_VARYING = frozenset({"ago", "pg_conf_load_time", "pg_postmaster_start_time", "version"})
_CONSISTENT, _VOLATILE = "CONSISTENT", "VOLATILE"
_COLUMNS_SHOWN = 40
_LINE = re.compile(r"^LINE \d+: (.*)$", re.MULTILINE)
_FROM_NOW_ALONE = "age"
_ALLOWED_ALTHOUGH_VOLATILE = frozenset({"error"})


class UnsoundQueryError(FlowMeshError):
    """A query is not one SELECT over its inputs.

    Attributes:
        detail: the tables with their columns; may be empty.
    """

    def __init__(self, message: str, remedy: str, detail: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.detail = detail


CONFIGURATION = {
    "threads": "1",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "preserve_insertion_order": "true",
    "temp_directory": "",
}
"""Of every database that sees a user's query. One thread, because sums of floats on several threads
differ between runs."""


@functools.cache
def parser() -> Any:
    """Returns a database without tables; use a cursor of it."""
    import duckdb  # noqa: PLC0415 - slow to load

    return duckdb.connect(":memory:", config=CONFIGURATION)


@functools.cache
def _varying_functions() -> frozenset[str]:
    query = "select function_name, stability from duckdb_functions()"
    found = varying_functions(parser().cursor().execute(query).fetchall())
    return found - _ALLOWED_ALTHOUGH_VOLATILE | _ALSO_VARYING


def varying_functions(overloads: Iterable[tuple[str, str | None]]) -> frozenset[str]:
    """Returns the functions that have a volatile overload, or no overload that is consistent.

    An overload that is consistent within a query, beside consistent ones, depends on the time zone,
    which is UTC in every database that runs a user's query: DuckDB 2.0.1 declares so ``+`` of a
    TIMESTAMPTZ.

    Args:
        overloads: names with their stability; None for macros and functions of tables.
    """
    found = [(name, stability) for name, stability in overloads if stability]
    consistent = {name for name, stability in found if stability == _CONSISTENT}
    volatile = {name for name, stability in found if stability == _VOLATILE}
    return frozenset(name for name, _ in found) - (consistent - volatile)


def refuse_unsound(query: str, tables: Tables) -> None:
    """Refuses a query that is not one SELECT over the tables.

    Args:
        query: as the user wrote it.
        tables: columns by table.

    Raises:
        UnsoundQueryError: names what is wrong and where.
    """
    parsed = parser().cursor().execute("select json_serialize_sql(?)", [query]).fetchall()
    try:
        tree = orjson.loads(parsed[0][0])
    except orjson.JSONDecodeError as e:  # it has more levels than the reader of JSON takes
        remedy = "write a shorter expression, or several steps"
        raise UnsoundQueryError("the query is nested too deeply", remedy) from e
    if tree.get("error"):
        raise UnsoundQueryError(_syntax(tree, query), _statements_remedy(tree))
    statements = tree["statements"]
    if len(statements) != 1:
        raise UnsoundQueryError(f"the query has {len(statements)} statements", "write one SELECT")
    nodes, varying = list(_nodes(statements[0])), _varying_functions()
    known_columns = [names for names in tables.values() if names is not None]
    columns = (
        {c.lower() for names in known_columns for c in names}
        if len(known_columns) == len(tables)
        else _CALLED_WITHOUT_BRACKETS  # any of them may be a column
    )
    known = {name.lower() for name in tables} | _named_by_with(nodes)
    for node in nodes:
        _refuse_unknown_table(node, known, tables, query)
        what = _varying(node, varying, columns) or _table_function(node) or _sample(node)
        if what is not None:
            at = node.get("query_location", 0)
            raise UnsoundQueryError(
                f"{what} is refused{_line(query, at)}: the result would depend on more than the "
                "inputs",
                "pass the varying value as an input or a parameter",
            )


def refuse_equal_names(tables: Tables) -> None:
    """Refuses columns that differ only in case: SQL would treat them as one.

    Raises:
        UnsoundQueryError: names the table and two of its columns.
    """
    for table, names in tables.items():
        first: dict[str, str] = {}
        for name in names or ():
            other = first.setdefault(name.lower(), name)
            if other != name:
                raise UnsoundQueryError(
                    f"input {table!r} has the columns {other!r} and {name!r}, which are one in SQL",
                    "rename one of them in a step before, with code.python for example",
                )


def sql_message(error: Exception, query: str) -> str:
    """Returns DuckDB's message with the line of the user's query, which may run inside another."""
    text = str(error).strip()
    found = _LINE.search(text)
    if found is None:
        return text
    lines = [i for i, line in enumerate(query.split("\n"), 1) if line.strip() == found[1].strip()]
    head = text[: found.start()].strip()
    return f"{head} (line {lines[0]}: {found[1].strip()})" if lines else head


def refuse_equal_results(names: Sequence[str]) -> None:
    """Refuses a result with two columns of one name.

    Raises:
        UnsoundQueryError: names them.
    """
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise UnsoundQueryError(
            f"SQL: the result has {', '.join(map(repr, twice))} more than once",
            "give each column a name of its own (`... as name`)",
        )


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            waiting.extend(reversed(item))


def _varying(node: dict[str, Any], varying: frozenset[str], columns: Collection[str]) -> str | None:
    if node.get("class") == "COLUMN_REF":
        names = [str(n).lower() for n in node.get("column_names", ())]
        if len(names) == 1 and names[0] in _CALLED_WITHOUT_BRACKETS.difference(columns):
            return names[0]
        return None
    if node.get("class") not in ("FUNCTION", "WINDOW"):
        return None
    name = str(node.get("function_name", "")).lower()
    alone = name == _FROM_NOW_ALONE and len(node.get("arguments") or node.get("children") or ()) < 2  # noqa: PLR2004 - age(x) counts from now
    return f"{name}()" if alone or name in varying else None


def _named_by_with(nodes: Sequence[dict[str, Any]]) -> set[str]:
    maps = [n["cte_map"]["map"] for n in nodes if isinstance(n.get("cte_map"), dict)]
    recursive = {str(n["cte_name"]).lower() for n in nodes if n.get("cte_name")}
    return {str(entry["key"]).lower() for entries in maps for entry in entries} | recursive


def _refuse_unknown_table(
    node: dict[str, Any], known: set[str], tables: Tables, query: str
) -> None:
    if node.get("type") != "BASE_TABLE":
        return
    name = str(node.get("table_name", ""))
    place = ".".join(filter(None, (node.get("catalog_name"), node.get("schema_name"), name)))
    if place == name and name.lower() in known:
        return
    near = difflib.get_close_matches(name, tables, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UnsoundQueryError(
        f"there is no table {place!r}{_line(query, node.get('query_location', -1))}{hint}",
        "an input's name is its table's name",
        tables_text(tables),
    )


def tables_text(tables: Tables) -> str:
    """Returns the tables with their columns, for messages."""
    lines = []
    for name, columns in tables.items():
        names = ["…"] if columns is None else list(columns)
        more = ", …" if len(names) > _COLUMNS_SHOWN else ""
        lines.append(f"{name}({', '.join(names[:_COLUMNS_SHOWN])}{more})")
    return "tables: " + "; ".join(lines) if lines else "there are no tables"


def _table_function(node: dict[str, Any]) -> str | None:
    if node.get("type") != "TABLE_FUNCTION":
        return None
    name = str(node["function"].get("function_name", "")).lower()
    return None if name in _TABLE_FUNCTIONS else f"the table function {name}()"


def _sample(node: dict[str, Any]) -> str | None:
    sample = node.get("sample")
    if isinstance(sample, dict) and not sample.get("repeatable"):
        return "a sample without REPEATABLE (seed)"
    return None


def _syntax(tree: dict[str, Any], query: str) -> str:
    if tree.get("error_type") == "not implemented":
        return "the query is not a SELECT"
    message = str(tree.get("error_message", "the query cannot be read"))
    position = tree.get("position")
    return message + (_line(query, int(position)) if position is not None else "")


def _statements_remedy(tree: dict[str, Any]) -> str:
    if tree.get("error_type") == "not implemented":
        return "write one SELECT (PIVOT, INSERT, SET, COPY and the like are not allowed)"
    return "correct with.query"


def _line(query: str, position: int) -> str:
    if not 0 <= position <= len(query):
        return ""
    number = query.count("\n", 0, position) + 1
    text = query.split("\n")[number - 1].strip()
    return f" at line {number} ({text})"
