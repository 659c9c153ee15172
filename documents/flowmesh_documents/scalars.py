"""Reads plain YAML scalars, and refuses those that YAML 1.1 and 1.2 read differently.

``kubectl`` reads files by 1.1's rules, ``fmesh`` by 1.2's; a file must have the same meaning for
both, since the meaning is hashed. Scalars that both read alike are accepted; others must be quoted.
``5e-6`` is a number to the API server and to 1.2, and here.
"""

import re
from math import isfinite
from typing import Any

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WORDS_OF_1_1 = frozenset(
    form
    for word in ("y", "n", "yes", "no", "on", "off")
    for form in (word, word.title(), word.upper())
)
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_HEXADECIMAL = re.compile(r"[-+]?0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_REFUSED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"[-+]?0[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?"), "an octal number in YAML 1.1"),
    (re.compile(r"[-+]?0o[0-7]+"), "an octal number in YAML 1.2 and a string in YAML 1.1"),
    (re.compile(r"[-+]?0b[01_]+"), "a binary number in YAML 1.1 and a string in YAML 1.2"),
    (
        re.compile(r"[-+]?(0x)?[0-9][0-9a-fA-F]*_[0-9a-fA-F_.]*"),
        "a number in YAML 1.1 and a string in YAML 1.2",
    ),
    (
        re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"),
        "a number in base 60 in YAML 1.1 and a string in YAML 1.2",
    ),
    (
        re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"),
        "a date in YAML 1.1 and a string in YAML 1.2",
    ),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), "not a number in JSON"),
    (re.compile(r"=|<<"), "a special key in YAML 1.1 and a string in YAML 1.2"),
)
_INT64 = 2**63
_DIGITS = 1000
_TO_QUOTE = "-+.=<~0123456789yYnNoOtTfF"


class RefusedScalarError(ValueError):
    """A plain scalar whose meaning depends on the reader; the message shows how to write it."""


def read_plain(text: str) -> Any:
    """Returns the value of a plain (unquoted) scalar.

    Returns:
        None, a boolean, an integer, a finite float, or the text.

    Raises:
        RefusedScalarError: YAML 1.1 and 1.2 read it differently, or it is not a number in JSON.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _TO_QUOTE:
        return text
    if text in _WORDS_OF_1_1:
        raise RefusedScalarError(
            f"{text} is a boolean in YAML 1.1 and a string in YAML 1.2; "
            f'write true, false or "{text}"'
        )
    if _INTEGER.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        # Python refuses to read thousands of digits; none of so many fit into 64 bits.
        return _bounded(int(text, 0) if len(text) <= _DIGITS else _INT64, text)
    for pattern, meaning in _REFUSED:
        if pattern.fullmatch(text):
            raise RefusedScalarError(f'{text} is {meaning}; write "{text}" if it is a string')
    return _finite(text) if _FLOAT.fullmatch(text) else text


def _bounded(value: int, text: str) -> int:
    if not -_INT64 <= value < _INT64:
        raise RefusedScalarError(f'{text} does not fit into 64 bits; write "{text}" as a string')
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise RefusedScalarError(f'{text} is too large a number; write "{text}" as a string')
    return value
