"""Checks that JSON satisfies a schema, within a bound on time.

Called by engines for completions, and by routers for requests to services. The schema comes from a
tenant and the process also serves others. So patterns are RE2's, nothing is fetched, and the number
of steps is limited. Steps are counted instead of timed: on a busy machine a time limit would fail
valid rows.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from flowmesh_core.catalog.patterns import PatternError, schema_pattern, searchable
from flowmesh_core.errors import FlowMeshError

_STEPS = 10_000
_STEPS_A_CHARACTER = 10
"""A step is one keyword on one value, or ``_MEMBERS_A_STEP`` of their members: some microseconds. A
usual text takes less than one step per character, and six if each of its objects is compared with
thirty alternatives."""
_MEMBERS_A_STEP = 64
_MATCHED_A_MEMBER = 250
"""Parts of a pattern, times characters: RE2 follows all parts at once where its states are many."""
_SHOWN_CHARS = 200
_DIALECT = "$schema"


class _TooLongError(Exception):
    """The check exceeded its limit of steps."""


class SchemaRefusedError(FlowMeshError):
    """A schema that cannot be used, or cannot decide a value within the bounds."""


def refused(message: str, remedy: str) -> Exception:
    """Returns the error of a schema where its user has none of its own."""
    return SchemaRefusedError(message, remedy=remedy)


class SchemaProblem(NamedTuple):
    """Why a value does not satisfy a schema.

    Attributes:
        path: of the part that does not, such as ``$.rows[0]``; empty for the whole.
        message: what is wrong with it.
        field: the place of a property that is missing; else as ``path``.
    """

    path: str
    message: str
    field: str = ""


class BoundedSchema:
    """A compiled schema. Not thread-safe."""

    def __init__(
        self,
        schema: Mapping[str, Any],
        where: str,
        refuse: Callable[[str, str], Exception] = refused,
        *,
        steps: int = _STEPS,
        steps_a_character: int = _STEPS_A_CHARACTER,
        steps_max: float = math.inf,
    ) -> None:
        """Compiles the schema: draft 2020-12, unless ``$schema`` at its top names another.

        Args:
            schema: the schema.
            where: the parameter that contains it, for errors.
            refuse: makes the error of a schema that cannot be used, from message and remedy.
            steps: of a check, beside those for each character.
            steps_a_character: more steps for each character of the value's text.
            steps_max: the most of both.

        Raises:
            Exception: what ``refuse`` makes; it is not a JSON schema.
        """
        import jsonschema  # noqa: PLC0415 - only what has a schema needs it
        from referencing import Registry  # noqa: PLC0415 - as above

        self._where = where
        self._refuse = refuse
        self._steps = steps
        self._steps_a_character = steps_a_character
        self._steps_max = steps_max
        self._left: float = 0
        named = schema.get(_DIALECT)
        dialect = jsonschema.validators.validator_for(
            {_DIALECT: named} if isinstance(named, str) else {},
            default=jsonschema.Draft202012Validator,
        )
        # With $schema inside, the library's own, unbounded validator would check that part.
        plain = {k: v for k, v in schema.items() if k != _DIALECT}
        try:
            dialect.check_schema(schema, format_checker=None)
            reason = _unbounded(plain)
        except jsonschema.SchemaError as e:
            reason = f"{e.json_path}: {e.message[:_SHOWN_CHARS]}"
        except RecursionError:
            reason = "it is nested too deeply"
        if reason:
            raise self._refused(reason)
        bounded = {**dialect.VALIDATORS, **_LINEAR}
        counted = {keyword: self._counted(check) for keyword, check in bounded.items()}
        for keyword, patterns in (("pattern", _one), ("patternProperties", iter)):
            counted[keyword] = self._counted(bounded[keyword], patterns)
        validator = jsonschema.validators.extend(dialect, counted)
        # An empty registry fetches nothing: a reference to a remote address is an error.
        self._validator = validator(plain, registry=Registry())

    def problem_of_text(self, text: str) -> str:
        """Returns why a text is not JSON that satisfies the schema; empty if it is.

        Raises:
            Exception: what ``refuse`` makes; it cannot be decided within the bounds.
        """
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as e:
            return f"it is not JSON: {e}"
        return self.problem_of(value, len(text))

    def problem_of(self, value: Any, characters: int) -> str:
        """Returns where and why a value does not satisfy the schema; empty if it does.

        Args:
            value: of JSON.
            characters: the length of its text, which the limit of steps depends on.

        Raises:
            Exception: what ``refuse`` makes; it cannot be decided within the bounds.
        """
        found = self.find_problem(value, characters)
        if found is None:
            return ""
        return f"at {found.path}: {found.message}" if found.path else found.message

    def find_problem(self, value: Any, characters: int) -> SchemaProblem | None:
        """Returns the first problem of a value; see :meth:`problem_of`."""
        from referencing.exceptions import Unresolvable  # noqa: PLC0415 - as in __init__

        steps = min(self._steps + self._steps_a_character * characters, self._steps_max)
        self._left = steps * _MEMBERS_A_STEP
        try:
            found = next(self._validator.iter_errors(value), None)
        except _TooLongError:
            raise self._refuse(
                f"{self._where} takes more than {steps:,} steps to check for a text of"
                f" {characters:,} characters",
                "write fewer alternatives (anyOf, oneOf) inside each other",
            ) from None
        except PatternError as e:
            raise self._refused(f"a pattern is not a regular expression of RE2: {e}") from e
        except Unresolvable as e:
            raise self._refuse(
                f"{self._where} refers to {e.ref!r}, which is not in it", "put it under $defs"
            ) from e
        except RecursionError:
            return SchemaProblem("", "it is nested too deeply to be checked")
        except ArithmeticError as e:
            return SchemaProblem("", f"a number cannot be checked: {e}")
        return None if found is None else _problem_of(found)

    def _refused(self, reason: str) -> Exception:
        return self._refuse(f"{self._where} cannot be used: {reason}", f"correct {self._where}")

    def _counted(self, check: Any, patterns: Callable[[Any], Iterator[str]] | None = None) -> Any:
        def counting(validator: Any, keyword: Any, value: Any, schema: Any) -> Any:
            self._left -= _MEMBERS_A_STEP + _members(keyword) + _members(value)
            if patterns is not None and isinstance(value, str | dict):
                characters = len(value) if isinstance(value, str) else sum(map(len, value))
                parts = sum(schema_pattern(p).programsize for p in patterns(keyword))
                self._left -= parts * characters // _MATCHED_A_MEMBER
            if self._left < 0:
                raise _TooLongError
            return check(validator, keyword, value, schema)

        return counting


def _problem_of(found: Any) -> SchemaProblem:
    path, message = found.json_path, found.message[:_SHOWN_CHARS]
    field = path
    if found.validator == "required" and isinstance(found.instance, dict):
        missing = next((n for n in found.validator_value if n not in found.instance), "")
        field = f"{path}.{missing}"
    return SchemaProblem(path, message, field)


def _one(pattern: str) -> Iterator[str]:
    yield pattern


def _members(value: Any) -> int:
    return len(value) if isinstance(value, str | list | dict) else 0


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _unbounded(schema: Mapping[str, Any]) -> str:
    """Returns why a part would be checked by the library's unbounded search; empty if none is."""
    found: set[str] = set()
    inside: list[Any] = [schema]
    while inside:
        part = inside.pop()
        if isinstance(part, Mapping):
            found.update(part)
            if isinstance(part.get(_DIALECT), str):
                return f"{_DIALECT} is allowed only at the top level"
            inside.extend(part.values())
        elif isinstance(part, list):
            inside.extend(part)
    if {"unevaluatedProperties", "patternProperties"} <= found:
        return "unevaluatedProperties cannot be combined with patternProperties"
    return ""


# -- replacements for the library's checks that backtrack or compare each pair of values ---------


def _pattern(validator: Any, pattern: str, value: Any, _: Any) -> Iterator[Any]:
    if validator.is_type(value, "string") and not schema_pattern(pattern).search(searchable(value)):
        yield _error(f"{_shown(value)} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, given: Mapping[str, Any], value: Any, _: Any
) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    for pattern, schema in given.items():
        for name, member in value.items():
            if schema_pattern(pattern).search(searchable(name)):
                yield from validator.descend(member, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, given: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    patterns = [schema_pattern(p) for p in schema.get("patternProperties", {})]
    known = schema.get("properties", {})
    for name, member in value.items():
        if name in known or any(p.search(searchable(name)) for p in patterns):
            continue
        if validator.is_type(given, "object"):
            yield from validator.descend(member, given, path=name)
        elif not given:
            yield _error(f"additional properties are not allowed: {_shown(name)}")


def _unique_items(validator: Any, wanted: Any, value: Any, _: Any) -> Iterator[Any]:
    if not wanted or not validator.is_type(value, "array"):
        return
    if len({_key(item) for item in value}) < len(value):
        yield _error("two items are equal")


def _key(value: Any) -> Any:
    """Returns a key that is equal for equal values: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, dict):
        return ("object", frozenset((name, _key(member)) for name, member in value.items()))
    if isinstance(value, list):
        return ("array", tuple(_key(item) for item in value))
    return (isinstance(value, bool), value)


def _error(message: str) -> Any:
    import jsonschema  # noqa: PLC0415 - as in BoundedSchema

    return jsonschema.ValidationError(message)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…")


_LINEAR = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
