"""SQL over rows, on this machine."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flowmesh_sdk.errors import FlowMeshError
from flowmesh_sdk.tables import missing, with_json

if TYPE_CHECKING:
    import pyarrow


def query(text: str, tables: Mapping[str, "Callable[[], pyarrow.Table]"]) -> "pyarrow.Table":
    """Returns the rows of a SELECT over tables; it can read no file and no address.

    A json column of a table has DuckDB's type JSON, as in ``data.sql``, also in what is returned.

    Args:
        text: one SELECT.
        tables: reads each table; called for those that are named in the query.

    Raises:
        FlowMeshError: DuckDB is not installed, or the query is wrong.
    """
    try:
        import duckdb  # noqa: PLC0415 - optional, and slow to load
    except ImportError as e:
        raise missing("duckdb", "sql") from e
    with duckdb.connect() as database:
        try:
            for name, read in tables.items():
                if name in text:
                    database.register(name, _with_columns(name, read()))
            # The query may come from anywhere.
            database.execute("SET enable_external_access = false; SET lock_configuration = true")
            statements = duckdb.extract_statements(text)
            if [s.type for s in statements] != [duckdb.StatementType.SELECT]:
                raise _wrong("it is not one SELECT", tables)
            found = database.sql(text)
            is_json = [str(kind) == "JSON" for kind in found.types]
            return with_json(found.to_arrow_table(), is_json)
        except duckdb.Error as e:
            raise _wrong(str(e).strip().splitlines()[0], tables) from e


def _with_columns(name: str, table: "pyarrow.Table") -> "pyarrow.Table":
    if table.num_columns:
        return table
    raise FlowMeshError(
        "it has no columns, since what made it had no rows and named none",
        where=f'table "{name}"',
        remedy="have the step that makes it name them, as `select ... where false` does",
    )


def _wrong(message: str, tables: Mapping[str, object]) -> FlowMeshError:
    names = ", ".join(f'"{name}"' for name in tables)
    return FlowMeshError(message, where="the query", remedy=f"the tables are {names}")
