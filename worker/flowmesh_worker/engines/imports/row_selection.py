"""Which rows and columns an import takes: its parameters ``limit`` and ``columns``."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The first rows of files that are read one after the other, and some of their columns.

    Attributes:
        rows_max: rows that are still wanted; None for all.
        columns: their names; None for all.
    """

    rows_max: int | None = None
    columns: tuple[str, ...] | None = None

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> "RowSelection":
        """Converts the parameters of ``dataset.import``."""
        columns = params.get("columns")
        return cls(params.get("limit"), None if columns is None else tuple(map(str, columns)))

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.rows_max is None and self.columns is None

    @property
    def is_done(self) -> bool:
        """Whether no more rows are wanted."""
        return self.rows_max == 0

    def after(self, rows: int) -> "RowSelection":
        """Returns the rest of the selection once a number of rows is read."""
        if self.rows_max is None:
            return self
        return replace(self, rows_max=max(0, self.rows_max - rows))
