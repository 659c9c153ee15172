"""The patterns of users: checked at admission, and matched against completions.

Those of JSON schemas are RE2's, which matches in time linear in the text, so that no pattern of one
tenant can delay an engine host that serves others. It has no look-around and no references back to
a group. Those of verifiers and judges have both, are searched with a time limit, and are bounded
here, since what compiles them has none and writes repetitions out.
"""

import re
import re._constants as tokens  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

PATTERN_CHARS_MAX = 4096
PATTERN_SIZE_MAX = 100_000
"""Of parts, with repetitions written out as often as they must occur."""
SCHEMA_PATTERN_PARTS = 20_000
"""Of a JSON schema's pattern in RE2, which may look at each for every character of a text."""
_REPEATS = (tokens.MAX_REPEAT, tokens.MIN_REPEAT, tokens.POSSESSIVE_REPEAT)

_UNICODE = re.compile(r"(\\\\)|\\u([0-9A-Fa-f]{4})")
_HINTS = {
    "invalid perl operator": "RE2 has no look-ahead or look-behind",
    "invalid escape sequence": "RE2 has no references back to a group",
    "invalid repetition size": "RE2 repeats at most 1,000 times; use minLength and maxLength",
}


class PatternError(ValueError):
    """A pattern that RE2 cannot compile."""


@lru_cache(maxsize=128)
def schema_pattern(pattern: str) -> Any:
    r"""Returns a compiled pattern of a JSON schema, with ``\u00e9`` as in JavaScript.

    Args:
        pattern: the regular expression.

    Returns:
        An object with ``search(text)``, which matches anywhere in the text.

    Raises:
        PatternError: it is not a regular expression of RE2.
    """
    import re2  # noqa: PLC0415 - only few workflows have patterns

    options = re2.Options()
    options.log_errors = False
    text = searchable(_UNICODE.sub(lambda m: m[1] or rf"\x{{{m[2]}}}", pattern))
    try:
        found = re2.compile(text, options)
    except re2.error as e:
        reason = e.args[0].decode(errors="replace") if isinstance(e.args[0], bytes) else str(e)
        hint = _HINTS.get(reason.partition(":")[0], "")
        raise PatternError(f"{reason} ({hint})" if hint else reason) from e
    if found.programsize > SCHEMA_PATTERN_PARTS:
        raise PatternError(
            f"it has {found.programsize:,} parts with its repetitions written out, of at most"
            f" {SCHEMA_PATTERN_PARTS:,} (use minLength and maxLength)"
        )
    return found


def searchable(text: str) -> str:
    """Returns a text as RE2 takes it: with U+FFFD for halves of surrogate pairs."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def pattern_problem(pattern: str) -> str:
    """Returns why a pattern of a verifier or a judge is refused; empty where it is not."""
    if len(pattern) > PATTERN_CHARS_MAX:
        return f"a regular expression of more than {PATTERN_CHARS_MAX:,} characters; shorten it"
    try:
        re.compile(pattern)
        size = _size(parser.parse(pattern))
    except (re.error, RecursionError, OverflowError) as e:
        return f"not a regular expression: {e}"
    if size > PATTERN_SIZE_MAX:
        return (
            f"a regular expression of more than {PATTERN_SIZE_MAX:,} parts, with its repetitions"
            " written out; write smaller repetitions"
        )
    return ""


def _size(parsed: Any) -> int:
    """Returns the parts of a parsed pattern, those of repetitions as often as they must occur."""
    found = 0
    for token, value in parsed:
        times = max(1, value[0]) if token in _REPEATS else 1
        found += times * (1 + sum(map(_size, _inner(value))))
    return found


def _inner(value: Any) -> Iterator[Any]:
    if isinstance(value, parser.SubPattern):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _inner(part)
