"""Formats rows for a model: JSON, one line per row."""

import json
from collections.abc import Iterable, Mapping
from typing import Any


def shown_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns the rows as JSON lines."""
    return "\n".join(json.dumps(dict(r), ensure_ascii=False, default=str) for r in rows)
