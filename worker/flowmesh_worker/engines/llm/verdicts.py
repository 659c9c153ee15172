"""Parses a judge's answers into numbers or labels; it never guesses a verdict."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import regex

from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.json_schemas import JsonSchema

_SECONDS = 1.0
"""Time limit of a user's pattern on one answer, since other actions share the process."""
_STRIPPED = " \t\r\n\"'`*.,:;!()[]"


class Verdicts:
    """Parses the answers of one action's judge."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        """Compiles ``pattern``, ``jsonSchema`` with ``key``, and ``labels``.

        Raises:
            AttemptError: bad input; they cannot be combined, or one of them is not valid.
        """
        schema = params.get("jsonSchema")
        self._schema = None if schema is None else JsonSchema(schema, "with.jsonSchema")
        self._key = str(params.get("key") or "score")
        self.labels: Sequence[str] = [str(label) for label in params.get("labels") or ()]
        self._by_text = {_plain(label): label for label in self.labels}
        if len(self._by_text) != len(self.labels):
            raise bad_input("two of with.labels differ only in case or punctuation", "rename one")
        pattern = params.get("pattern")
        if pattern is not None and self._schema is not None:
            raise bad_input("with takes either pattern or jsonSchema", "give one of the two")
        self._pattern = None if pattern is None else _compiled(str(pattern))

    def read(self, answer: str) -> float | str | None:
        """Returns the verdict in an answer; None if there is none.

        Raises:
            AttemptError: bad input; the pattern or the schema exceeds its limit of time or steps.
        """
        schema = self._schema
        found = self._of_text(answer) if schema is None else self._of_json(schema, answer)
        if found is None or isinstance(found, bool):
            return None
        if self.labels:
            return self._by_text.get(_plain(str(found)))
        try:
            number = float(found)
        except (TypeError, ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None

    def _of_json(self, schema: JsonSchema, answer: str) -> Any:
        if schema.problem_of_text(answer):
            return None
        value = json.loads(answer)
        return value.get(self._key) if isinstance(value, dict) else None

    def _of_text(self, answer: str) -> str | None:
        if self._pattern is None:
            return answer.strip()
        try:
            found = list(self._pattern.finditer(answer, timeout=_SECONDS))
        except TimeoutError as e:
            raise bad_input(
                f"with.pattern searches an answer for more than {_SECONDS:g} s",
                "write a pattern without nested repetitions",
            ) from e
        return found[-1][1] if found else None


def _compiled(pattern: str) -> Any:
    try:
        compiled = regex.compile(pattern)
    except regex.error as e:
        raise bad_input(f"with.pattern is not a regular expression: {e}", "correct it") from e
    if compiled.groups != 1:
        raise bad_input(
            f"with.pattern has {compiled.groups} groups",
            "write exactly one group (...) around the verdict; (?:...) groups without capturing",
        )
    return compiled


def _plain(text: str) -> str:
    return text.strip(_STRIPPED).casefold()
