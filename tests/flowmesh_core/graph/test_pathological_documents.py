"""Documents that would take ages or gigabytes to admit: each is refused, with its place."""

import tracemalloc

import pytest
from tests.flowmesh_core.graph.steps import GENERATE, INPUTS

from flowmesh_core.graph.references import ReferenceFormError, Selection, parse_selection
from flowmesh_core.spec.suggestions import nearest
from flowmesh_documents.substitution import FILLED_BYTES_MAX, Substitution

SPACES = " " * 200_000


@pytest.mark.parametrize("text", [f'a={SPACES}"', f"a=b{SPACES}c{SPACES}'", f"{SPACES}a{SPACES}'"])
def test_a_long_selection_is_read_in_one_pass(text: str) -> None:
    with pytest.raises(ReferenceFormError, match="selects nothing"):
        parse_selection(text)


def test_selections_are_read_as_before() -> None:
    text = """ lr = 1e-5 ,name='a, b',  text = two words , other="c\\"d" """
    values = {"lr": 1e-5, "name": "a, b", "text": "two words", "other": 'c"d'}
    assert parse_selection(text) == Selection(values)


def test_a_long_number_in_quotes_is_described_in_one_pass(problems) -> None:
    weights = {"alpha": "1" * 200_000 + "x", "beta": "2.5", "gamma": 1}
    found = problems({}, weights=weights)
    assert found["spec.weights.alpha"].startswith("expected a number, got the string")
    assert "quotes" not in found["spec.weights.alpha"]
    assert "quotes" in found["spec.weights.beta"]


def test_a_long_name_is_compared_with_no_other() -> None:
    long = "".join(chr(0x4E00 + i * i % 5000) for i in range(20_000))
    assert nearest(long + "x", [long]) is None
    assert nearest("smaples", [long, "samples"]) == "samples"


def test_a_condition_is_not_expanded_beyond_its_maximum_length(problems) -> None:
    when = "params.go && '${params.text}' != '${params.text}'"
    params = {"go": True, "text": "x" * 500_000}
    assert problems({"when": "params.go"}, params=params) == {}
    tracemalloc.start()
    try:
        found = problems({"when": when}, params=params)
        refused = problems({"when": "'${params.go}' == '' || " * 20_000 + "true"}, params=params)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "characters, of at most 4096" in found["spec.steps[0].when"]
    assert refused["spec.steps[0].when"] == "expected at most 4096 characters"
    assert peak < 64 * 1024 * 1024
    short = {"go": True, "text": "y"}
    assert problems({"when": when.replace("!=", "==")}, params=short) == {}


def test_parameters_are_not_expanded_beyond_their_limit(problems) -> None:
    params = {"big": "x" * 1_000_000}
    named = "${params.big}" * 1_000
    tracemalloc.start()
    try:
        found = problems({**GENERATE, "with": {"prompt": named}}, inputs=INPUTS, params=params)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    said = f"more than {FILLED_BYTES_MAX} bytes once filled in"
    assert said in found["spec.steps[0].with.prompt"]
    assert peak < 4 * FILLED_BYTES_MAX


def test_instances_beyond_the_limit_are_not_expanded_at_all(
    problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = []
    fill = Substitution.fill

    def counted(self, value, report, keys=(), **more):  # type: ignore[no-untyped-def]
        filled.append(keys)
        return fill(self, value, report, keys, **more)

    monkeypatch.setattr(Substitution, "fill", counted)
    generate = {**GENERATE, "matrix": {"n": list(range(1000))}, "with": {"prompt": "${params.big}"}}
    params = {"big": "x" * 8_000_000}
    found = problems(generate, inputs=INPUTS, params=params)
    assert "bytes of parameters, once filled in" in found["spec.steps"]
    top = [keys for keys in filled if keys and keys[-1] == "with"]
    assert len(top) == 9, "eight fit, and the ninth is one too many"
