"""The nearest valid name, for errors that suggest what to write instead."""

import difflib
import itertools
from collections.abc import Iterable

_SHOWN = 8
_LONGEST = 64
"""Characters of a name that is compared letter by letter, which takes quadratic time."""
_COMPARED = 1000
_BEGUN = 3  # from this many letters on, the start of one valid name counts as that name


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Returns the valid name most like this one, or None where none is near."""
    if len(name) > _LONGEST:
        return None
    names = list(itertools.islice((n for n in valid if len(n) <= _LONGEST), _COMPARED))
    by_folded = {n.casefold(): n for n in names}
    begun = [
        n for f, n in by_folded.items() if len(name) >= _BEGUN and f.startswith(name.casefold())
    ]
    if len(begun) == 1:
        return begun[0]
    folded = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[folded[0]] if folded else None


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Returns the end of an error: ``; did you mean 'sft'?``, or the valid names."""
    names = list(valid)
    near = nearest(name, names)
    if near is not None:
        return f"; did you mean {near!r}?"
    if not names:
        return ""
    shown = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; there is {shown}{more}"
