"""The patterns of JSON schemas: checked at admission, and matched against completions.

RE2 matches in time linear in the text, so that no pattern of one tenant can delay an engine host
that serves others. It has no look-around and no references back to a group.
"""

import re
from functools import lru_cache
from typing import Any

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
    text = _UNICODE.sub(lambda m: m[1] or rf"\x{{{m[2]}}}", pattern)
    try:
        return re2.compile(text, options)
    except re2.error as e:
        reason = e.args[0].decode(errors="replace") if isinstance(e.args[0], bytes) else str(e)
        hint = _HINTS.get(reason.partition(":")[0], "")
        raise PatternError(f"{reason} ({hint})" if hint else reason) from e
