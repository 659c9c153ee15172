"""Text to documents with positions."""

import json

import pytest

from flowmesh_api.v1.problems import Problem
from flowmesh_documents.document import parse_documents
from flowmesh_documents.scalars import RefusedScalarError, read_plain


def _one(text: str) -> object:
    (document,), problems = parse_documents(text)
    assert problems == []
    return document.value


def test_values_are_those_of_json() -> None:
    assert _one('{a: [1, 2.5, "3", yes!, null, true], b: {c: 5e-6}}') == {
        "a": [1, 2.5, "3", "yes!", None, True],
        "b": {"c": 5e-6},
    }


def test_quoted_and_block_scalars_are_strings_whatever_they_look_like() -> None:
    assert _one("a: \"on\"\nb: '010'\nc: |\n  1_000\nd: !!str 1:30\n") == {
        "a": "on",
        "b": "010",
        "c": "1_000\n",
        "d": "1:30",
    }


def test_every_field_has_its_line_and_column() -> None:
    (document,), _ = parse_documents("spec:\n  steps:\n    - name: a\n    - {name: b, uses: x}\n")
    assert document.position(("spec", "steps", 0, "name")) == (3, 7)
    assert document.position(("spec", "steps", 1, "uses")) == (4, 17)
    assert document.position(("spec", "steps", 1, "with", "prompt")) == (4, 7)
    assert document.locate(Problem("spec.steps[1].uses", "m")) == Problem(
        "spec.steps[1].uses", "m", 4, 17
    )


def test_all_refused_scalars_of_a_file_are_reported_at_once_and_read_as_strings() -> None:
    documents, problems = parse_documents("a: on\nb: [1:30]\n---\nc: 010\n")
    assert [(p.path, p.line, p.column) for p in problems] == [
        ("a", 1, 4),
        ("b[0]", 2, 5),
        ("c", 4, 4),
    ]
    assert [d.value for d in documents] == [{"a": "on", "b": ["1:30"]}, {"c": "010"}]


def test_a_key_written_twice_is_refused_and_both_lines_are_named() -> None:
    _, (problem,) = parse_documents("a: 1\nb: 2\na: 3\n")
    assert problem == Problem("a", "written twice, first on line 1", 3, 1)


@pytest.mark.parametrize("key", ["on", "y", "010", "<<"])
def test_a_key_that_versions_of_yaml_read_differently_is_refused(key: str) -> None:
    with pytest.raises(RefusedScalarError):
        read_plain(key)
    _, problems = parse_documents(f"{key}: 1\n")
    assert len(problems) == 1


def test_a_key_that_is_not_a_string_is_refused() -> None:
    _, problems = parse_documents("1: a\n? [x]\n: b\n")
    assert [p.message for p in problems] == [
        'a key must be a string; write "1"',
        "a key must be a string, not a list or mapping; quote a text that has {{ or {",
    ]


def test_aliases_are_expanded_and_anchors_are_not_shared_between_documents() -> None:
    (first, second), problems = parse_documents("a: &x [1]\nb: *x\n---\nc: *x\n")
    assert first.value == {"a": [1], "b": [1]}
    assert second.value == {"c": None}
    assert [p.message for p in problems] == ["alias *x is not defined before"]


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1", 1), ("a: b: c", 1), ("a: 1\n\tb: 2", 2), ("a: 'x", 1), ("a: \x00", 0)],
)
def test_invalid_yaml_is_reported_with_its_line(text: str, line: int) -> None:
    _, problems = parse_documents(text)
    assert problems[-1].message.startswith("not YAML: ")
    assert problems[-1].line >= min(line, 1) or line == 0


def test_empty_documents_are_skipped() -> None:
    documents, problems = parse_documents("---\n---\na: 1\n---\n# nothing\n")
    assert [d.value for d in documents] == [{"a": 1}]
    assert problems == []


def test_a_file_beyond_the_limit_is_refused_unread() -> None:
    documents, (problem,) = parse_documents("a: 1\n" * 100, max_bytes=100)
    assert documents == []
    assert "larger than 100 bytes" in problem.message


def test_a_tab_is_refused_with_what_to_write() -> None:
    (problem,) = parse_documents("spec:\n\tsteps: []\n")[1]
    assert problem.message.endswith("; use spaces in place of the tab")
    assert (problem.line, problem.column) == (2, 1)


INDENT = "; indent the line as those beside it"
ONE_MAPPING = f"{INDENT}, write a space after each colon, and quote a text that has ': '"


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        ("spec:\n   a: 1\n  b: 2\n", 3, INDENT),
        ("steps:\n  - name: a\n   uses: b\n", 3, INDENT),
        ("spec:\n  a: 1\n   b: 2\n", 3, ONE_MAPPING),
        ("a: x: y\n", 1, ONE_MAPPING),
        ("a:b\nc: d\n", 2, ONE_MAPPING),
        ("a: @x\n", 1, "; quote the text that begins with it"),
        ("prompt: {{ question }}\n", 1, "; quote a text that has {{ or {"),
    ],
)
def test_a_common_mistake_of_yaml_is_refused_with_what_to_do(
    text: str, line: int, remedy: str
) -> None:
    [problem] = parse_documents(text)[1]
    assert problem.line == line
    assert problem.message.endswith(remedy)


def test_halves_of_a_character_are_read_as_json_writes_them() -> None:
    text = '{"a": "\\ud83d\\ude00 \\u00e9", "\\ud83d\\ude00": ["\\ud83d\\ude00"]}'
    assert _one(text) == json.loads(text)


def test_half_a_character_is_refused_with_its_line() -> None:
    (document,), problems = parse_documents('a: 1\nb:\n- "x\\ud800"\n"\\ude00": 1\n')
    assert [(p.path, p.line, p.column) for p in problems] == [("b[0]", 3, 3), ("", 4, 1)]
    assert "one half of a surrogate pair" in problems[0].message
    assert document.value == {"a": 1, "b": ["x\ufffd"], "\ufffd": 1}
