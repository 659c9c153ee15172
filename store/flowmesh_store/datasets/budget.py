"""How much an upload may become when it is decoded: a file may say far more than it holds.

Readers and the cutting of chunks take from it as they go, so that what is refused was never built.
Every cell counts a byte at least, so that neither nulls nor empty columns are free.
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


class DecodeBudget:
    """Counts what a file has become, in bytes of Arrow's columns."""

    def __init__(self, name: str, file_bytes: int, *, base_bytes: int = DECODED_BASE_BYTES) -> None:
        """Gives a file its budget.

        Args:
            name: of the file, for the errors.
            file_bytes: its size.
            base_bytes: what it may become besides a multiple of its size.
        """
        self.name = name
        self.left_bytes = self.all_bytes = min(
            DECODED_FACTOR * file_bytes + base_bytes, DECODED_BYTES_MAX
        )

    def take(self, table: Any) -> None:
        """Counts a batch of typed rows, a ``pyarrow.Table``.

        Raises:
            ContentLimitError: the file becomes too much, or a row is too long.
        """
        size = decoded_bytes(table)
        if size > ROW_BYTES_MAX:
            self._refuse_long_rows(table)
        self.left_bytes -= size
        self.require(0, "the file")

    def require_cells(self, rows: int, columns: int) -> None:
        """Checks that so many cells may still come, each of a byte at least.

        Raises:
            ContentLimitError: they are more than what is left.
        """
        self.require(rows * columns, f"a table of {rows:,} rows and {columns:,} columns")

    def require(self, size_bytes: int, what: str) -> None:
        """Checks that so much may still come.

        Raises:
            ContentLimitError: it is more than what is left.
        """
        if size_bytes > self.left_bytes:
            raise ContentLimitError(
                f"{what} decodes to more than {self.all_bytes // MIB} MiB",
                where=self.name,
                remedy=f"a file may become {DECODED_FACTOR} times its size and"
                f" {DECODED_BASE_BYTES // MIB} MiB, and {DECODED_BYTES_MAX >> 30} GiB at most;"
                " split it, or leave out columns",
            )

    def _refuse_long_rows(self, table: Any) -> None:
        longest = pc.max(_row_bytes(table)).as_py()
        if longest > ROW_BYTES_MAX:
            raise long_row(self.name)


def long_row(where: str) -> ContentLimitError:
    """The error for a row that is too long."""
    return ContentLimitError(
        f"a row has more than {ROW_BYTES_MAX // MIB} MiB",
        where=where,
        remedy="cut its texts into several rows, or bring them as files of a tree",
    )


def decoded_bytes(table: Any) -> int:
    """What a table's values take, and a byte for every cell."""
    size: int = table.num_rows * max(1, table.num_columns)
    for column in table.columns:
        size += max(0, column.nbytes - column.null_count * _slot_bytes(column.type))
    return size


def _slot_bytes(t: Any) -> int:
    """What a null takes in a column of this type."""
    return int(t.bit_width) // 8 if pa.types.is_primitive(t) else _OFFSET_BYTES


def _row_bytes(table: Any) -> Any:
    """The bytes of each row's values of varying length; what the others take is small."""
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
