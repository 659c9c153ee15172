"""Field paths as text and back."""

from hypothesis import given
from hypothesis import strategies as st

from flowmesh_documents.paths import path_keys, path_text


def test_a_path_is_printed_in_its_usual_form() -> None:
    assert path_text(("spec", "steps", 3, "inputs", "model")) == "spec.steps[3].inputs.model"
    assert path_text(("spec", "params", 'a.b"c')) == 'spec.params["a.b\\"c"]'


@given(st.lists(st.text(min_size=1) | st.integers(0, 10**6), min_size=1))
def test_a_printed_path_is_parsed_back_into_its_keys(keys: list[str | int]) -> None:
    assert path_keys(path_text(tuple(keys))) == tuple(keys)
