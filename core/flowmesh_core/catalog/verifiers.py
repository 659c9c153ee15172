"""Verifiers: named checks of one completion by a program, with arguments as data.

The compiler refuses unknown names and arguments by this table; training uses the checks as reward
functions and evaluation as scores. Their code is in the worker, beside the engines. A check returns
1.0 where the completion passes and 0.0 where it does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

NAME = "name"
FORMAT = "verifiers"
"""``Param.format`` of a list of verifiers."""


class Argument(StrEnum):
    """What an argument of a verifier must be."""

    COLUMN = "a column of the rows"
    NUMBER = "a number, at least 0"
    COUNT = "a whole number, at least 0"
    BOOLEAN = "true or false"
    REGEX = "a regular expression"
    SCHEMA = "a JSON schema"


@dataclass(frozen=True, slots=True)
class Verifier:
    """One named check.

    Attributes:
        required: arguments that must be given.
        optional: arguments that may be given.
        one_of: arguments of which exactly one must be given.
        doc: one sentence, the user's reference.
    """

    doc: str
    required: Mapping[str, Argument] = field(default_factory=dict)
    optional: Mapping[str, Argument] = field(default_factory=dict)
    one_of: tuple[str, ...] = ()

    def arguments(self) -> dict[str, Argument]:
        """Returns all arguments by name."""
        return {**self.required, **self.optional}


_TARGET = {"target": Argument.COLUMN}

VERIFIERS: Mapping[str, Verifier] = {
    "number-equals": Verifier(
        "The last number of the completion equals the last number of the column `target`, within"
        " `tolerance` (default 0). Thousands commas, signs, decimals, `$` and `%` are read as in"
        " GSM8K.",
        required=_TARGET,
        optional={"tolerance": Argument.NUMBER},
    ),
    "choice-equals": Verifier(
        "The choice that the completion names (`B`, `B)`, `The answer is B.`, or the text of a"
        " choice) is the one in the column `target`: a letter, an index from 0, or a text."
        " `choices` is the column with the list of texts; without it only the letters A to J are"
        " read.",
        required=_TARGET,
        optional={"choices": Argument.COLUMN},
    ),
    "equals": Verifier(
        "The completion equals the column `target`, apart from white space at both ends; with"
        " `normalize`, case, punctuation at both ends and the length of white space are ignored"
        " too.",
        required=_TARGET,
        optional={"normalize": Argument.BOOLEAN},
    ),
    "contains": Verifier(
        "The completion contains the text of the column `target`; with `normalize`, case and the"
        " length of white space are ignored.",
        required=_TARGET,
        optional={"normalize": Argument.BOOLEAN},
    ),
    "matches": Verifier(
        "The regular expression `pattern` is found in the completion.",
        required={"pattern": Argument.REGEX},
    ),
    "json-valid": Verifier(
        "The completion is JSON, with or without a code fence around it, and satisfies `schema` if"
        " one is given.",
        optional={"schema": Argument.SCHEMA},
    ),
    "length-at-most": Verifier(
        "The completion has at most this many `tokens` or `characters`.",
        optional={"tokens": Argument.COUNT, "characters": Argument.COUNT},
        one_of=("tokens", "characters"),
    ),
}
"""Verifiers by name."""


def reference() -> str:
    """Returns every verifier with its sentence, for the docs of parameters that take them."""
    return " ".join(f"`{name}`: {verifier.doc}" for name, verifier in VERIFIERS.items())


def metric_names(checks: Sequence[Mapping[str, object]]) -> list[str]:
    """Returns the name of each check in metrics; repeated ones are numbered from 2.

    ``number-equals`` is ``number_equals``, a second one ``number_equals_2``.
    """
    seen: dict[str, int] = {}
    found = []
    for check in checks:
        name = str(check[NAME]).replace("-", "_")
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


def columns_named(checks: object) -> tuple[tuple[str, str], ...]:
    """Returns the columns that verifiers name: ``(place below the parameter, column)``."""
    found = []
    for i, check in enumerate(checks if isinstance(checks, list | tuple) else ()):
        verifier = VERIFIERS.get(str(check.get(NAME))) if isinstance(check, Mapping) else None
        for name, kind in (verifier.arguments() if verifier else {}).items():
            if kind is Argument.COLUMN and isinstance(check.get(name), str):
                found.append((f"[{i}].{name}", str(check[name])))
    return tuple(found)
