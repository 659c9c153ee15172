"""The forms in which a step names the sources of an input.

A reference; a list of references, whose data sets are joined; ``{firstOf: [...]}``, the first that
was not skipped; and ``{from: ..., whenSkipped: ...}``, which says what a skip does to the step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flowmesh_core.dataset.schema import Schema
from flowmesh_core.errors import IdentityError
from flowmesh_core.graph.compile_context import CompileContext, Keys
from flowmesh_core.graph.plan import ABSENT, ALL, EMPTY, FIRST, SKIP
from flowmesh_core.spec.error_messages import describe
from flowmesh_core.spec.suggestions import did_you_mean

FIRST_OF, FROM, WHEN_SKIPPED = "firstOf", "from", "whenSkipped"
_FIELDS = (FIRST_OF, FROM, WHEN_SKIPPED)
_MODES = (SKIP, ABSENT, EMPTY)
_EXPECTED = (
    "expected a source such as inputs.rows, a list of sources, {firstOf: [...]} or"
    " {from: ..., whenSkipped: ...}"
)


@dataclass(frozen=True, slots=True)
class InputForm:
    """What an author wrote for one input.

    Attributes:
        references: each with its place.
        place: of the input, or of what it says about skips.
        listed: whether they stand in a list.
        pick: ``all`` or ``first``.
        when_skipped: ``skip``, ``absent`` or ``empty``.
        empty_columns: of the data set without rows, where the author gave them.
    """

    references: tuple[tuple[str, Keys], ...]
    place: Keys
    listed: bool = False
    pick: str = ALL
    when_skipped: str = SKIP
    empty_columns: Mapping[str, str] | None = None

    @property
    def text(self) -> str:
        """The sources as words."""
        names = [text for text, _ in self.references]
        return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


def read_form(scope: CompileContext, value: Any, keys: Keys) -> InputForm | None:
    """Returns what an input's value says, or None with problems reported.

    Args:
        scope: the compilation.
        value: as it was written.
        keys: where it is.
    """
    if isinstance(value, str):
        return InputForm(((value, keys),), keys)
    if isinstance(value, list):
        references = _listed(scope, value, keys)
        return None if references is None else InputForm(references, keys, listed=True)
    if isinstance(value, Mapping):
        return _mapping(scope, value, keys)
    scope.report(keys, f"{_EXPECTED}; got {describe(value)}")
    return None


def _listed(
    scope: CompileContext, values: list[Any], keys: Keys
) -> tuple[tuple[str, Keys], ...] | None:
    if not values:
        scope.report(keys, "expected at least one source")
        return None
    if len(values) > scope.limits.sources:
        scope.report(
            keys,
            f"{len(values)} sources, of at most {scope.limits.sources}; write <step>[*].<port> for"
            " all instances of a matrix, or join some in a step before",
        )
        return None
    wrong = [(i, v) for i, v in enumerate(values) if not isinstance(v, str)]
    for i, value in wrong:
        scope.report((*keys, i), f"expected a source such as inputs.rows, got {describe(value)}")
    return None if wrong else tuple((text, (*keys, i)) for i, text in enumerate(values))


def _mapping(scope: CompileContext, value: Mapping[str, Any], keys: Keys) -> InputForm | None:
    unknown = [name for name in value if name not in _FIELDS]
    for name in unknown:
        scope.report((*keys, name), f"no field {name!r} here{did_you_mean(str(name), _FIELDS)}")
    if unknown:
        return None
    if (FIRST_OF in value) == (FROM in value):
        got = "both" if FROM in value else "neither"
        scope.report(keys, f"expected exactly one of {FIRST_OF} and {FROM}, got {got}")
        return None
    form = _sources(scope, value, keys)
    place = (*keys, WHEN_SKIPPED)
    mode = _mode(scope, value.get(WHEN_SKIPPED, SKIP), place)
    if form is None or mode is None:
        return None
    when_skipped, columns = mode
    return replace(form, place=place, when_skipped=when_skipped, empty_columns=columns)


def _sources(scope: CompileContext, value: Mapping[str, Any], keys: Keys) -> InputForm | None:
    if FIRST_OF in value:
        given, at = value[FIRST_OF], (*keys, FIRST_OF)
        if not isinstance(given, list):
            scope.report(at, f"expected a list of sources, got {describe(given)}")
            return None
        references = _listed(scope, given, at)
        return None if references is None else InputForm(references, at, pick=FIRST)
    given, at = value[FROM], (*keys, FROM)
    if isinstance(given, str | list):
        return read_form(scope, given, at)
    scope.report(at, f"expected a source or a list of sources, got {describe(given)}")
    return None


def _mode(
    scope: CompileContext, given: Any, keys: Keys
) -> tuple[str, Mapping[str, str] | None] | None:
    if isinstance(given, str) and given in _MODES:
        return given, None
    if isinstance(given, Mapping) and set(given) == {EMPTY} and isinstance(given[EMPTY], Mapping):
        try:
            return EMPTY, Schema.of(given[EMPTY]).types()
        except IdentityError as e:
            scope.report((*keys, EMPTY), str(e))
            return None
    hint = did_you_mean(given, _MODES) if isinstance(given, str) else ""
    scope.report(
        keys,
        f"expected skip, absent, empty or {{empty: {{column: type}}}}, got {describe(given)}{hint}",
    )
    return None
