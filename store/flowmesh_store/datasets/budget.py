"""The budget of an upload's decoded size, because a small file may expand to far more.

Readers and the chunk cutter count against it as they go, so that a refused file is never decoded
whole. Every cell counts at least one byte, so that neither nulls nor empty columns are free.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowmesh_core.errors import ContentLimitError

MIB = 1 << 20
COLUMNS_MAX = 4096
ROW_BYTES_MAX = 16 * MIB
DECODED_FACTOR = 16
DECODED_BASE_BYTES = 64 * MIB
DECODED_BYTES_MAX = 8 << 30
_OFFSET_BYTES = 4
NULLS_MAX = 16 << 20
NULLS_FACTOR = 16
CHUNK_ROWS_MAX = 1 << 17
CHUNK_VALUES_MAX = 1 << 20
"""As many as 256 rows of 4,096 columns; chunks that are cut from many rows have no more."""


class DecodeBudget:
    """Counts the decoded size of a file, in bytes of Arrow's columns."""

    def __init__(self, name: str, file_bytes: int, *, base_bytes: int = DECODED_BASE_BYTES) -> None:
        """Computes the budget of a file.

        Args:
            name: of the file, for errors.
            file_bytes: its size.
            base_bytes: added to a multiple of its size.
        """
        self.name = name
        self.left_bytes = self.all_bytes = min(
            DECODED_FACTOR * file_bytes + base_bytes, DECODED_BYTES_MAX
        )

    def take(self, table: Any) -> None:
        """Counts a batch of typed rows, a ``pyarrow.Table``.

        Raises:
            ContentLimitError: the file exceeds its budget, or a row is too long.
        """
        size = decoded_bytes(table)
        if size > ROW_BYTES_MAX:
            self._refuse_long_rows(table)
        self.left_bytes -= size
        self.require(0, "the file")

    def require_cells(self, rows: int, columns: int) -> None:
        """Checks that the budget suffices for a table's cells, of at least one byte each.

        Raises:
            ContentLimitError: it does not.
        """
        self.require(rows * columns, f"a table of {rows:,} rows and {columns:,} columns")

    def require(self, size_bytes: int, what: str) -> None:
        """Checks that the budget suffices for a further size.

        Args:
            size_bytes: the further size.
            what: its name in the error.

        Raises:
            ContentLimitError: it does not.
        """
        if size_bytes > self.left_bytes:
            raise ContentLimitError(
                f"{what} decodes to more than {self.all_bytes // MIB} MiB",
                where=self.name,
                remedy=f"a file may expand to {DECODED_FACTOR} times its size plus"
                f" {DECODED_BASE_BYTES // MIB} MiB, and to {DECODED_BYTES_MAX >> 30} GiB at most;"
                " split it, or leave out columns",
            )

    def _refuse_long_rows(self, table: Any) -> None:
        longest = pc.max(_row_bytes(table)).as_py()
        if longest > ROW_BYTES_MAX:
            raise long_row(self.name)


def refuse_nulls(rows: int, columns: int, values: int) -> None:
    """Raises ``ContentLimitError`` where nearly all cells of a table are null.

    A null takes no room in the rows, and as much as any value once they are typed by column.

    Args:
        rows: their number.
        columns: their number.
        values: how many cells are given.
    """
    if rows * columns > NULLS_MAX + NULLS_FACTOR * values:
        raise ContentLimitError(
            f"{rows:,} rows of {columns:,} columns have {values:,} values, all others are null:"
            f" expected at most {NULLS_MAX:,} nulls, and {NULLS_FACTOR} for each value",
            remedy="leave out columns, or give each row a column with a name and one with a value",
        )


def refuse_large_chunk(rows: int, columns: int) -> None:
    """Raises ``ContentLimitError`` where a chunk has more rows or cells than its readers accept."""
    if rows > CHUNK_ROWS_MAX or rows * columns > CHUNK_VALUES_MAX:
        raise ContentLimitError(
            f"a chunk has {rows:,} rows of {columns:,} columns: expected at most"
            f" {CHUNK_ROWS_MAX:,} rows and {CHUNK_VALUES_MAX:,} values",
            remedy="return fewer rows for each row of the input, or fewer columns",
        )


def long_row(where: str) -> ContentLimitError:
    """Returns the error for a row that is too long."""
    return ContentLimitError(
        f"a row has more than {ROW_BYTES_MAX // MIB} MiB",
        where=where,
        remedy="split its texts into several rows, or upload them as files of a directory",
    )


def decoded_bytes(table: Any) -> int:
    """Returns the size of a table's values, plus one byte for every cell."""
    size: int = table.num_rows * max(1, table.num_columns)
    for column in table.columns:
        size += max(0, column.nbytes - column.null_count * _slot_bytes(column.type))
    return size


def _slot_bytes(t: Any) -> int:
    """Returns the size of a null in a column of this type."""
    return int(t.bit_width) // 8 if pa.types.is_primitive(t) else _OFFSET_BYTES


def _row_bytes(table: Any) -> Any:
    """Returns the bytes of each row's values of variable length; the others are small."""
    total = pa.array([0] * table.num_rows, pa.int64())
    for column in table.columns:
        t = column.type
        if pa.types.is_string(t) or pa.types.is_binary(t):
            sizes = pc.binary_length(column)
        elif pa.types.is_list(t) and not pa.types.is_string(t.value_type):
            sizes = pc.multiply(pc.list_value_length(column), t.value_type.bit_width // 8)
        elif pa.types.is_list(t):
            texts = [sum(map(len, v)) if v else 0 for v in column.to_pylist()]
            sizes = pa.array(texts, pa.int64())
        else:
            continue
        total = pc.add(total, pc.fill_null(sizes.cast(pa.int64()), 0))
    return total
