"""SQL over rows, on this machine."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flowmesh_sdk.errors import FlowMeshError

if TYPE_CHECKING:
    import pyarrow


def query(text: str, tables: Mapping[str, "Callable[[], pyarrow.Table]"]) -> "pyarrow.Table":
    """Returns the rows of a SELECT over tables; it can read no file and no address.

    Args:
        text: one SELECT.
        tables: reads each table; called for those that are named in the query.

    Raises:
        FlowMeshError: DuckDB is not installed, or the query is wrong.
    """
    try:
        import duckdb  # noqa: PLC0415 - optional, and slow to load
    except ImportError as e:
        remedy = "pip install 'flowmesh-fabric-sdk[sql]'"
        raise FlowMeshError("duckdb is not installed", remedy=remedy) from e
    with duckdb.connect() as database:
        for name, read in tables.items():
            if name in text:
                database.register(name, read())
        # The query may come from anywhere.
        database.execute("SET enable_external_access = false; SET lock_configuration = true")
        try:
            statements = duckdb.extract_statements(text)
            if [s.type for s in statements] != [duckdb.StatementType.SELECT]:
                raise _wrong("it is not one SELECT", tables)
            return database.sql(text).to_arrow_table()
        except duckdb.Error as e:
            raise _wrong(str(e).strip().splitlines()[0], tables) from e


def _wrong(message: str, tables: Mapping[str, object]) -> FlowMeshError:
    names = ", ".join(f'"{name}"' for name in tables)
    return FlowMeshError(message, where="the query", remedy=f"the tables are {names}")
