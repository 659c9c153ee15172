"""Attacker: T5, a workflow file that a user of `fmesh` was given.

Action: aliases that multiply values or texts, nesting, endless scalars, tags that make objects.
Must not happen: reading the file takes gigabytes or minutes, or runs anything.
"""

import os
import tracemalloc

import pytest

from flowmesh_core.spec.load import load_text
from flowmesh_documents.document import MAX_TEXT_BYTES, parse_documents

GROWTH_BYTES_MAX = 256 << 20


def laughs(levels: int, width: int, leaf: str = "x") -> str:
    lines = [f"a0: &a0 [{', '.join([leaf] * width)}]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(lines)


def mappings(levels: int) -> str:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i} {{l: *a{i - 1}, r: *a{i - 1}}}" for i in range(1, levels)]
    return "\n".join(lines)


TOO_MUCH = {
    "lists of lists": (laughs(12, 10), "too many values"),
    "mappings of mappings": (mappings(40), "too many values"),
    "a long text again and again": (
        f"a: &a '{'x' * 100_000}'\nb: [{', '.join(['*a'] * 20_000)}]", "too many characters"
    ),
    "texts of texts": (laughs(5, 10, "'" + "y" * 10_000 + "'"), "too many characters"),
    "a long key in each of them": (
        laughs(5, 10, "{" + "k" * 100 + f": {'v' * 5_000}" + "}"), "too many characters"
    ),
    "nested lists": ("[" * 100 + "]" * 100, "nested too deeply"),
    "nested mappings": ("{a: " * 100 + "}" * 100, "nested too deeply"),
    "nested blocks": ("\n".join("  " * n + "a:" for n in range(100)), "nested too deeply"),
    "an alias in itself": ("a: &x [*x]", "contains itself"),
    "an alias in its mapping": ("a: &x {b: *x}", "contains itself"),
    "a file beyond the limit": ("a: 1\n" * (MAX_TEXT_BYTES // 5 + 1), "larger than"),
    "a tag of Python": ("a: !!python/object/apply:os.system ['touch marker']", "tag"),
    "another": ("a: !!python/object/new:os.system ['touch marker']", "tag"),
    "a tag of bytes": ("a: !!binary AAAA", "tag"),
    "a merge": ("a: &a {x: 1}\nb: {<<: *a}", "<<"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_file_that_grows_is_refused_in_little_memory(
    name: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    text, reason = TOO_MUCH[name]
    tracemalloc.start()
    try:
        _, problems = parse_documents(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert any(reason in problem.message for problem in problems), problems[-3:]
    assert peak <= GROWTH_BYTES_MAX, peak
    assert os.listdir() == []


def test_honest_aliases_are_filled_in() -> None:
    head = "apiVersion: flowmesh.dev/v1alpha1\nkind: FlowMeshWorkflow\nmetadata: {name: x}\n"
    steps = "\n".join(f"  - {{name: s{n}, uses: test.noop, with: *w}}" for n in range(500))
    first = "  - {name: s, uses: test.noop, with: &w {value: " + "v" * 5_000 + "}}"
    loaded, problems = load_text(f"{head}spec:\n  steps:\n{first}\n{steps}\n")
    assert problems == []
    [document] = loaded
    assert document.problems == ()
    assert document.document.value["spec"]["steps"][500]["with"] == {"value": "v" * 5_000}
