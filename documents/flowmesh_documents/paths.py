"""Field paths such as ``spec.steps[3].inputs.model``, as text and as keys.

Problems have the text; the document turns it back into keys to find the line.
"""

import re

Key = str | int
_PLAIN = re.compile(r"[A-Za-z_*$][A-Za-z0-9_$/-]*")
_PART = re.compile(r'\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\.?([^.\[\]]+)')


def path_text(keys: tuple[Key, ...]) -> str:
    """Returns keys as a path; a name with other characters is quoted: ``params["a.b"]``."""
    out = ""
    for key in keys:
        if isinstance(key, int):
            out += f"[{key}]"
        elif _PLAIN.fullmatch(key):
            out += f".{key}" if out else key
        else:
            escaped = key.replace("\\", "\\\\").replace('"', '\\"')
            out += f'["{escaped}"]'
    return out


def path_keys(text: str) -> tuple[Key, ...]:
    """Returns the keys of a path written by :func:`path_text`."""
    keys: list[Key] = []
    for number, quoted, plain in _PART.findall(text):
        if number:
            keys.append(int(number))
        elif plain:
            keys.append(plain)
        else:
            keys.append(re.sub(r"\\(.)", r"\1", quoted))
    return tuple(keys)
