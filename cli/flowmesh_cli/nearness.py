"""Suggests a similar known name for a misspelt one."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns ``; did you mean 'x'?`` where a known name is similar, else an empty text."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
