"""The rows of a data set, read from the fabric as they are needed."""

import contextlib
import itertools
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from flowmesh_api.decoding import decode
from flowmesh_sdk import sql
from flowmesh_sdk.errors import FlowMeshError
from flowmesh_sdk.html import table_html
from flowmesh_sdk.http.client import ApiConnection

if TYPE_CHECKING:
    import datasets
    import pandas
    import pyarrow

HEAD = 5
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
        """Yields each row.

        Raises:
            FlowMeshError: the content is gone or incomplete, or the fabric does not answer.
        """
        return self._read()

    def _read(self) -> Generator[Row, None, None]:
        query = {"partial": True} if self._partial else {}
        rest = b""
        with self._http.stream(self._path, **query) as pieces:
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
        """Returns the first rows; reads no more than these."""
        with contextlib.closing(self._read()) as rows:
            return list(itertools.islice(rows, n))

    def to_list(self) -> list[Row]:
        """Returns all rows."""
        return list(self)

    def to_arrow(self) -> "pyarrow.Table":
        """Returns a table (needs ``pip install 'flowmesh-fabric-sdk[arrow]'``)."""
        try:
            import pyarrow  # noqa: PLC0415 - optional, and slow to load
        except ImportError as e:
            raise _missing("pyarrow", "arrow") from e
        return pyarrow.Table.from_pylist(self.to_list())

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a data frame (needs ``pip install 'flowmesh-fabric-sdk[pandas]'``)."""
        try:
            import pandas  # noqa: PLC0415 - optional, and slow to load
        except ImportError as e:
            raise _missing("pandas", "pandas") from e
        return pandas.DataFrame(self.to_list())

    def to_hf(self) -> "datasets.Dataset":
        """Returns a data set of Hugging Face (needs ``pip install datasets``)."""
        try:
            import datasets  # noqa: PLC0415 - optional, and slow to load
        except ImportError as e:
            raise FlowMeshError("datasets is not installed", remedy="pip install datasets") from e
        return datasets.Dataset.from_list(self.to_list())

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


def _missing(package: str, extra: str) -> FlowMeshError:
    return FlowMeshError(
        f"{package} is not installed", remedy=f"pip install 'flowmesh-fabric-sdk[{extra}]'"
    )


_decoder = msgspec.json.Decoder(dict[str, Any])
