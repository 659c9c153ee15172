"""Fills in ``${params.x}`` and ``${matrix.x}`` inside ``with``, before templates are read.

A scalar that is exactly one ``${…}`` becomes the value with its type; inside a longer string the
value is written as text. ``$${`` stands for ``${``.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from flowmesh_core.graph.limits import Limits, json_size
from flowmesh_core.graph.values import value_text
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_documents.paths import Key

_REFERENCE = re.compile(r"(\$?)\$\{([^{}]*)\}?")
FILLED_BYTES_MAX = Limits().params_bytes
"""Bytes that references may add to one step."""
_NAME = re.compile(r"\s*(params|matrix)((?:\.[A-Za-z_][A-Za-z0-9_]*)+)\s*")

Report = Callable[[tuple[Key, ...], str], None]


class UnknownNameError(ValueError):
    """A ``${…}`` with an unknown name; the message lists near names."""


class Substitution:
    """Fills in references to the values of one step instance.

    Args:
        params: the workflow's params.
        matrix: the instance's matrix values.
    """

    def __init__(self, params: Mapping[str, Any], matrix: Mapping[str, Any]) -> None:
        self._scopes: dict[str, Mapping[str, Any]] = {"params": params, "matrix": matrix}
        self._sizes: dict[str, int] = {}
        self._filled_bytes = 0

    def fill(self, value: Any, report: Report, keys: tuple[Key, ...] = ()) -> Any:
        """Returns the value with every reference filled in.

        Args:
            value: a JSON-like value; it is not changed.
            report: called with the keys and the message of every unknown name.
            keys: where the value is.
        """
        if isinstance(value, str):
            return self._string(value, report, keys) if "${" in value else value
        if isinstance(value, dict):
            return {k: self.fill(v, report, (*keys, k)) for k, v in value.items()}
        if isinstance(value, list):
            return [self.fill(v, report, (*keys, i)) for i, v in enumerate(value)]
        return value

    def look_up(self, name: str) -> Any:
        """Returns the value of ``params.x`` or ``matrix.x`` (``params.a.b`` looks into objects).

        Raises:
            UnknownNameError: there is no such value.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise UnknownNameError(
                f"${{{name}}} is not a reference; write ${{params.name}}, ${{matrix.name}},"
                " or $${ for a plain ${"
            )
        scope, path = match[1], match[2][1:].split(".")
        found: Any = self._scopes[scope]
        walked = scope
        for part in path:
            if not isinstance(found, Mapping) or part not in found:
                valid = list(found) if isinstance(found, Mapping) else []
                raise UnknownNameError(f"no {part!r} in {walked}{did_you_mean(part, valid)}")
            found = found[part]
            walked += f".{part}"
        return found

    def _string(self, text: str, report: Report, keys: tuple[Key, ...]) -> Any:
        def replaced(match: re.Match[str]) -> str:
            if match[1]:
                return match[0][1:]
            return value_text(self._found(match, report, keys))

        whole = _REFERENCE.fullmatch(text)
        if whole is not None and not whole[1]:
            return self._found(whole, report, keys)
        return _REFERENCE.sub(replaced, text)

    def _found(self, match: re.Match[str], report: Report, keys: tuple[Key, ...]) -> Any:
        if not match[0].endswith("}"):
            report(keys, f"{match[0][:20]!r} has no closing brace; write $${{ for a plain ${{")
            return match[0]
        try:
            value = self.look_up(match[2])
        except UnknownNameError as e:
            report(keys, str(e))
            return match[0]
        if self._filled_bytes > FILLED_BYTES_MAX:
            return match[0]  # reported when the limit was passed
        self._filled_bytes += self._size(match[2], value)
        if self._filled_bytes <= FILLED_BYTES_MAX:
            return value
        most = f"more than {FILLED_BYTES_MAX} bytes once filled in"
        report(keys, f"{most}; name large values less often")
        return match[0]

    def _size(self, name: str, value: Any) -> int:
        if name not in self._sizes:
            self._sizes[name] = json_size(value)
        return self._sizes[name]
