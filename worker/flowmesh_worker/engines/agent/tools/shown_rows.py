"""Rows as a model reads them: JSON, a line a row."""

import json
from collections.abc import Iterable, Mapping
from typing import Any


def shown_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """The rows, a line each."""
    return "\n".join(json.dumps(dict(r), ensure_ascii=False, default=str) for r in rows)
