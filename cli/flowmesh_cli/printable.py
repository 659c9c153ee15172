"""Texts that others wrote, as they may be written to a terminal.

A tenant writes messages, logs and names that an administrator reads. A terminal obeys control
characters in them: it would change its title, its clipboard or what was written before.
"""

import re

_REFUSED = re.compile(
    r"(\x1b\[[0-9;]*m)"  # colours, as in logs of vLLM
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


def printable(text: str) -> str:
    """Returns a text with control characters and changes of direction as escapes."""
    return _REFUSED.sub(lambda found: found[1] or _escape(found[0]), text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
