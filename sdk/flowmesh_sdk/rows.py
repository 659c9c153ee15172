"""The rows of a data set, read from the fabric as they are needed."""

import contextlib
import itertools
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from flowmesh_api.decoding import decode
from flowmesh_sdk import sql, tables
from flowmesh_sdk.errors import FlowMeshError, InvalidArgumentError
from flowmesh_sdk.html import table_html
from flowmesh_sdk.http.client import ApiConnection

if TYPE_CHECKING:
    import datasets
    import pandas
    import pyarrow

HEAD = 5
_HEAD_MAX = 10**15 - 1
"""The most that the API takes: no data set has as many rows."""
_SHOWN_BYTES = 80
Row = dict[str, Any]


class Rows:
    """Rows in order. Each iteration reads them anew, and none is kept.

    Attributes:
        count: how many; None where that is not known before they are read.
    """

    def __init__(
        self, http: ApiConnection, path: str, *, count: int | None, partial: bool = False
    ) -> None:
        """Reads nothing yet."""
        self._http, self._path, self._partial = http, path, partial
        self.count = count

    def __iter__(self) -> Iterator[Row]:
        """Yields each row as it is in JSON: bytes are base64 text.

        Raises:
            FlowMeshError: the content is gone or incomplete, or the fabric does not answer.
        """
        return self._read()

    def _read(self, head: int | None = None) -> Generator[Row, None, None]:
        rest = b""
        with self._http.stream(self._path, partial=self._partial, head=head) as pieces:
            for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                yield from map(_row, filter(None, lines))
        if rest.strip():
            yield _row(rest)

    def __len__(self) -> int:
        """Returns their number; reads them where it is not known."""
        if self.count is None:
            self.count = sum(1 for _ in self)
        return self.count

    def head(self, n: int = HEAD) -> list[Row]:
        """Returns the first rows; the fabric reads no more than the chunks that have these.

        Raises:
            InvalidArgumentError: ``n`` is negative, or no whole number.
        """
        if not isinstance(n, int) or n < 0:
            raise InvalidArgumentError(
                f"{n!r} is not a number of rows", where="head()", remedy="give 0 or more"
            )
        if n == 0:
            return []
        n = min(n, _HEAD_MAX)
        with contextlib.closing(self._read(n)) as rows:
            return list(itertools.islice(rows, n))

    def to_list(self) -> list[Row]:
        """Returns all rows."""
        return list(self)

    @contextlib.contextmanager
    def arrow_reader(self) -> Iterator["pyarrow.RecordBatchReader"]:
        """Yields a reader of record batches, one a chunk, which are read as they are asked for.

        The columns have the data set's own types: a json column is of Arrow's type ``arrow.json``,
        bytes are binary. It needs ``pip install 'flowmesh-fabric-sdk[arrow]'``.

        Raises:
            FlowMeshError: as iteration.
        """
        tables.require_pyarrow()
        accept = tables.ARROW_STREAM
        with self._http.stream(self._path, accept=accept, partial=self._partial) as pieces:
            yield tables.open_stream(pieces)

    def to_arrow(self) -> "pyarrow.Table":
        """Returns all rows as a table, with the types of :meth:`arrow_reader`."""
        with self.arrow_reader() as reader:
            return reader.read_all()

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a data frame (needs ``pip install 'flowmesh-fabric-sdk[pandas]'``).

        Values of json columns are objects; integers stay integers where some are null.
        """
        try:
            import pandas  # noqa: F401, PLC0415 - optional, and slow to load
        except ImportError as e:
            raise tables.missing("pandas", "pandas") from e
        return tables.data_frame(self.to_arrow())

    def to_hf(self) -> "datasets.Dataset":
        """Returns a data set of Hugging Face.

        A json column has the feature ``Json``, whose values are objects of any shape. It needs
        ``pip install 'flowmesh-fabric-sdk[datasets]'``.
        """
        try:
            import datasets  # noqa: PLC0415 - optional, and slow to load
        except ImportError as e:
            raise tables.missing("datasets", "datasets") from e
        return datasets.Dataset(self.to_arrow())

    def sql(self, query: str) -> "pyarrow.Table":
        """Returns the rows of a SELECT over the table ``rows``, made on this machine.

        It needs ``pip install 'flowmesh-fabric-sdk[sql]'``.

        Raises:
            FlowMeshError: the query is wrong.
        """
        return sql.query(query, {"rows": self.to_arrow})

    def __repr__(self) -> str:
        """Shows how many there are; reads nothing."""
        return f"<Rows: {'?' if self.count is None else self.count}>"

    def _repr_html_(self) -> str:
        shown = self.head()
        of = "" if self.count is None else f" of {self.count}"
        return table_html(shown, title=f"{len(shown)}{of} rows")


def _row(line: bytes) -> Row:
    try:
        return decode(_decoder, line)
    except msgspec.DecodeError as e:
        shown = line[:_SHOWN_BYTES].decode("ascii", "replace")
        raise FlowMeshError(f"a row is not JSON: {e}", where=shown) from e


_decoder = msgspec.json.Decoder(dict[str, Any])
