"""Tables of rows for pyarrow and pandas, which are optional and imported when they are used.

A json column has Arrow's own type for JSON, whose values are texts: :func:`table_rows` and
:func:`data_frame` decode them.
"""

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from flowmesh_sdk.errors import FlowMeshError

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from _typeshed import WriteableBuffer

ARROW_STREAM = "application/vnd.apache.arrow.stream"


def open_stream(pieces: Iterator[bytes]) -> "pyarrow.RecordBatchReader":
    """Returns a reader of the record batches in the pieces of an Arrow stream.

    Raises:
        FlowMeshError: pyarrow is not installed.
    """
    return require_pyarrow().ipc.open_stream(io.BufferedReader(_PiecesFile(pieces)))


def require_pyarrow() -> Any:
    """Returns pyarrow.

    Raises:
        FlowMeshError: it is not installed.
    """
    try:
        import pyarrow  # noqa: PLC0415 - optional, and slow to load
    except ImportError as e:
        raise missing("pyarrow", "arrow") from e
    return pyarrow


def missing(package: str, extra: str) -> FlowMeshError:
    """Returns the error for an optional package that is not installed."""
    return FlowMeshError(
        f"{package} is not installed", remedy=f"pip install 'flowmesh-fabric-sdk[{extra}]'"
    )


def table_rows(table: "pyarrow.Table") -> list[dict[str, Any]]:
    """Returns a table as rows, with the values of json columns decoded."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for name in _json_columns(table):
        for row in rows:
            row[name] = _decoded(row[name])
    return rows


def data_frame(table: "pyarrow.Table") -> "pandas.DataFrame":
    """Returns a table as a data frame.

    Values of json columns are objects, and integers stay integers where some are null (``Int64``).
    """
    import pandas  # noqa: PLC0415 - optional, and slow to load

    types = require_pyarrow().types
    frame = table.to_pandas(integer_object_nulls=True)
    for field in table.schema:
        if types.is_integer(field.type) and table.column(field.name).null_count:
            frame[field.name] = frame[field.name].astype("Int64")
    for name in _json_columns(table):
        values = [*map(_decoded, table.column(name).to_pylist())]
        frame[name] = pandas.Series(values, index=frame.index, dtype=object)
    return frame


def with_json(table: "pyarrow.Table", is_json: Sequence[bool]) -> "pyarrow.Table":
    """Returns a table in which some columns of texts have Arrow's type for JSON.

    Args:
        table: the texts.
        is_json: for each column, whether it has JSON.
    """
    pyarrow = require_pyarrow()
    kind = pyarrow.json_()
    for number in (n for n, wanted in enumerate(is_json) if wanted):
        texts = table.column(number).chunks
        chunks = [pyarrow.ExtensionArray.from_storage(kind, chunk) for chunk in texts]
        column = pyarrow.chunked_array(chunks, type=kind)
        table = table.set_column(number, pyarrow.field(table.field(number).name, kind), column)
    return table


def _json_columns(table: "pyarrow.Table") -> list[str]:
    json_type = require_pyarrow().JsonType
    return [field.name for field in table.schema if isinstance(field.type, json_type)]


def _decoded(value: str | None) -> Any:
    return None if value is None else msgspec.json.decode(value)


class _PiecesFile(io.RawIOBase):
    """A file to read, of pieces that come one by one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        target = memoryview(buffer).cast("B")
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        taken = self._rest[: len(target)]
        target[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)
