"""Maps DuckDB's types to column types, with the cast that converts them, and back."""

from collections.abc import Sequence

from flowmesh_core.dataset.schema import ColumnType

_PLAIN = {
    "BOOLEAN": ColumnType.BOOL,
    "VARCHAR": ColumnType.STRING,
    "BLOB": ColumnType.BYTES,
    "JSON": ColumnType.JSON,
    "FLOAT": ColumnType.FLOAT,
    "DOUBLE": ColumnType.FLOAT,
}
_INTEGERS = frozenset(
    {
        *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    }
)
_AS_TEXT = ("DATE", "TIME", "TIMESTAMP", "INTERVAL", "UUID", "ENUM", "BIT", "BIGNUM", "VARINT")
_LISTS = {
    ColumnType.INT: (ColumnType.LIST_INT, "BIGINT[]"),
    ColumnType.FLOAT: (ColumnType.LIST_FLOAT, "DOUBLE[]"),
    ColumnType.STRING: (ColumnType.LIST_STRING, "VARCHAR[]"),
}
_IN_TABLES = {
    ColumnType.NULL: '"NULL"',
    ColumnType.BOOL: "BOOLEAN",
    ColumnType.INT: "BIGINT",
    ColumnType.FLOAT: "DOUBLE",
    ColumnType.STRING: "VARCHAR",
    ColumnType.BYTES: "BLOB",
    ColumnType.JSON: "JSON",
    ColumnType.LIST_INT: "BIGINT[]",
    ColumnType.LIST_FLOAT: "DOUBLE[]",
    ColumnType.LIST_STRING: "VARCHAR[]",
}
_CASTS = {
    ColumnType.INT: "BIGINT",
    ColumnType.FLOAT: "DOUBLE",
    ColumnType.STRING: "VARCHAR",
    ColumnType.JSON: "JSON",
}


def column_type(duck: str) -> tuple[ColumnType, str]:
    """Returns the column type of a DuckDB type, and the type to cast to ("" for no cast).

    Dates, times, UUIDs and enums become text; decimals become floats; structs, maps and lists of
    anything else become JSON.
    """
    if duck in _PLAIN:
        return _PLAIN[duck], "DOUBLE" if duck == "FLOAT" else ""
    if duck.endswith("]") and not duck.startswith(("STRUCT", "MAP", "UNION")):
        inner = column_type(duck[: duck.rindex("[")])[0]
        return _LISTS.get(inner, (ColumnType.JSON, "JSON"))
    kind = _scalar(duck)
    return kind, "" if duck == "BIGINT" else _CASTS.get(kind, "")


def _scalar(duck: str) -> ColumnType:
    if duck.strip('"') == "NULL":
        return ColumnType.NULL
    if duck in _INTEGERS or (duck.startswith("DECIMAL") and duck.endswith(",0)")):
        return ColumnType.INT
    if duck.startswith("DECIMAL"):
        return ColumnType.FLOAT
    return ColumnType.STRING if duck.startswith(_AS_TEXT) else ColumnType.JSON


def projection(names: Sequence[str], types: Sequence[str]) -> tuple[dict[str, ColumnType], str]:
    """Returns the result's column types, and a select list that casts to them."""
    found: dict[str, ColumnType] = {}
    parts = []
    for name, duck in zip(names, types, strict=True):
        kind, cast = column_type(duck)
        found[name] = kind
        column = quoted(name)
        parts.append(f"cast({column} as {cast}) as {column}" if cast else column)
    return found, ", ".join(parts)


def table_type(column: ColumnType) -> str:
    """Returns the type that a column has in a table."""
    return _IN_TABLES[column]


def quoted(name: str) -> str:
    """Returns a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
