"""Fills in ``${params.x}`` and ``${matrix.x}``.

A text that is exactly one ``${…}`` becomes the value with its type, and a field whose value is null
then is left out; inside a longer text the value is written as text. ``$${`` stands for ``${``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from flowmesh_documents.paths import Key
from flowmesh_documents.values import json_size, value_text

FILLED_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that references may add to one step, and to all that is filled in beside the steps'
parameters."""
_SUGGESTED = 20
"""Unknown names for which near ones are sought, which takes long among many."""
_REFERENCE = re.compile(r"(\$?)\$\{([^{}]*)\}?")
_OF_PARAMS = re.compile(r"(\$?)\$\{(\s*params\b[^{}]*)\}?")
_NAME = re.compile(r"\s*(params|matrix)((?:\.[A-Za-z_][A-Za-z0-9_]*)+)\s*")

Keys = tuple[Key, ...]
Report = Callable[[Keys, str], None]


class UnknownNameError(ValueError):
    """A ``${…}`` with an unknown name; the message lists near names.

    It is empty where the name is unknown because of another problem, which is reported.
    """


def without_missing(filled: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a mapping without the fields whose references gave null; a null written stays."""
    return {k: v for k, v in filled.items() if v is not None or written[k] is None}


class Substitution:
    """Fills in references to parameters and, of one step instance, to matrix values.

    Attributes:
        places: where a parameter was filled in, with the reference.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        matrix: Mapping[str, Any] | None = None,
        *,
        unknown: Collection[Keys] = (),
        suggest: Callable[[str, Iterable[str]], str] = lambda _name, _valid: "",
    ) -> None:
        """Fills in nothing yet.

        Args:
            params: the workflow's parameters.
            matrix: the instance's matrix values; None where these are not filled in, so that any
                ``${`` that does not begin ``${params`` is plain text.
            unknown: ``("params", name)`` and ``("matrix", name)``, or the first alone for all, that
                have no value because of a problem that is reported.
            suggest: returns the end of an error, given a name and the valid ones.
        """
        self._scopes: dict[str, Mapping[str, Any]] = {"params": params, "matrix": matrix or {}}
        self._form = _OF_PARAMS if matrix is None else _REFERENCE
        self._unknown = unknown
        self._suggest = suggest
        self._sizes: dict[str, int] = {}
        self._filled_bytes = self._unknown_names = 0
        self.places: dict[Keys, str] = {}

    def fill(self, value: Any, report: Report, keys: Keys = (), *, keep_null: bool = False) -> Any:
        """Returns the value with every reference filled in.

        Args:
            value: a JSON-like value; it is not changed.
            report: called with the keys and the message of every unknown name.
            keys: where the value is.
            keep_null: whether fields whose reference is null stay, as in rows.
        """
        if isinstance(value, str):
            return self._string(value, report, keys) if "${" in value else value
        if isinstance(value, dict):
            filled = {
                k: self.fill(v, report, (*keys, k), keep_null=keep_null) for k, v in value.items()
            }
            return filled if keep_null else without_missing(filled, value)
        if isinstance(value, list):
            return [
                self.fill(v, report, (*keys, i), keep_null=keep_null) for i, v in enumerate(value)
            ]
        return value

    def look_up(self, name: str) -> Any:
        """Returns the value of ``params.x`` or ``matrix.x`` (``params.a.b`` looks into objects).

        Raises:
            UnknownNameError: there is no such value.
        """
        parts = tuple(name.strip().split("."))
        if self._unknown and (parts[:1] in self._unknown or parts[:2] in self._unknown):
            raise UnknownNameError("")
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
                self._unknown_names += 1
                hint = self._suggest(part, valid) if self._unknown_names <= _SUGGESTED else ""
                raise UnknownNameError(f"no {part!r} in {walked}{hint}")
            found = found[part]
            walked += f".{part}"
        return found

    def _string(self, text: str, report: Report, keys: Keys) -> Any:
        def replaced(match: re.Match[str]) -> str:
            if match[1]:
                return match[0][1:]
            return value_text(self._found(match, report, keys))

        whole = self._form.fullmatch(text)
        if whole is not None and not whole[1]:
            return self._found(whole, report, keys)
        return self._form.sub(replaced, text)

    def _found(self, match: re.Match[str], report: Report, keys: Keys) -> Any:
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
        if self._filled_bytes > FILLED_BYTES_MAX:
            most = f"more than {FILLED_BYTES_MAX} bytes once filled in"
            report(keys, f"{most}; name large values less often")
            return match[0]
        if match[2].lstrip().startswith("params"):
            self.places.setdefault(keys, f"${{{match[2].strip()}}}")
        return value

    def _size(self, name: str, value: Any) -> int:
        if name not in self._sizes:
            self._sizes[name] = json_size(value)
        return self._sizes[name]
