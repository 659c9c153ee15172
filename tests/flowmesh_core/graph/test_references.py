"""References, instances and what is filled in."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowmesh_core.graph.matrix import expand, index, select
from flowmesh_core.graph.references import (
    EVERY,
    ReferenceFormError,
    SameInstance,
    StepReference,
    parse_reference,
)
from flowmesh_documents.substitution import Substitution

NAMES = st.from_regex(r"[a-z]{1,4}", fullmatch=True)
SCALARS = (
    st.text(max_size=8)
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
)


def test_references_are_read_in_all_their_forms() -> None:
    assert parse_reference("inputs.base") == StepReference("inputs", "base")
    assert parse_reference("vote.rows") == StepReference("vote", "rows")
    star = parse_reference("tune[*].model").selection
    assert star is not None
    assert star.everything
    one = parse_reference('tune[lr=1e-5, mode="a,b]", all=*, own=matrix.x].model').selection
    assert one is not None
    assert one.values == {"lr": 1e-5, "mode": "a,b]", "all": EVERY, "own": SameInstance("x")}


@pytest.mark.parametrize(
    "text", ["", "a", "a.", ".b", "a.b.c", "a[].b", "a[x].b", "a[x=1.b", "a b.c"]
)
def test_other_texts_are_not_references(text: str) -> None:
    with pytest.raises(ReferenceFormError):
        parse_reference(text)


@example({"a": [" 0"]})
@given(st.dictionaries(NAMES, st.lists(SCALARS, min_size=1, max_size=3), min_size=1, max_size=3))
def test_the_path_of_every_instance_selects_only_that_instance(matrix: dict[str, list]) -> None:
    matrix = {
        k: [v for i, v in enumerate(vs) if not any(v == w for w in vs[:i])]
        for k, vs in matrix.items()
    }
    instances = expand("s", matrix)
    assert len({i.path for i in instances}) == len(instances)
    for instance in instances:
        selection = parse_reference(f"{instance.path}.rows").selection
        assert selection is not None
        assert select("s", index(matrix), selection, {}) == ([instance.path], False)


def _fill(value: object) -> object:
    names = Substitution({"n": 4, "f": 0.5, "o": {"a": [1]}, "s": "x", "b": True}, {"lr": 1e-5})
    told: list[str] = []
    filled = names.fill(value, lambda keys, message: told.append(message))
    assert told == []
    return filled


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${params.n}", 4),
        ("${ params.o }", {"a": [1]}),
        ("${params.o.a}", [1]),
        ("${matrix.lr}", 1e-5),
        ("n=${params.n} f=${params.f} lr=${matrix.lr}", "n=4 f=0.5 lr=1e-5"),
        ("${params.s}${params.s}", "xx"),
        ("${params.o}!", '{"a":[1]}!'),
        ("is ${params.b}", "is true"),
        ("$${params.n}", "${params.n}"),
        ("a $${x} ${params.n} $${", "a ${x} 4 ${"),
        ("{{ question }} costs $5 {% if x %}{% endif %}", None),
    ],
)
def test_references_are_filled_in_with_their_types(text: str, value: object) -> None:
    expected = text if value is None else value
    assert _fill(text) == expected
    assert type(_fill(text)) is type(expected)
    assert _fill({"a": [text]}) == {"a": [expected]}


@given(st.text())
def test_text_without_references_is_not_changed(text: str) -> None:
    assert _fill(text.replace("${", "")) == text.replace("${", "")
