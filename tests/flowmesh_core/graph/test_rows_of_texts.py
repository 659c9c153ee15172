"""Rows in a file that are plain texts: each is a row with the column `text`."""

from typing import Any

from tests.flowmesh_core.graph.steps import GENERATE, INPUTS

from flowmesh_core.spec.inputs import InputSpec
from flowmesh_core.spec.structural import structural_schema

TEXTS = {**INPUTS, "questions": {"rows": ["hello", {"text": "world"}]}}


def asking(template: str) -> dict[str, Any]:
    return {**GENERATE, "with": {"prompt": template}}


def test_a_text_is_a_row_with_the_column_text(problems: Any) -> None:
    assert InputSpec.model_validate(TEXTS["questions"]).rows == [
        {"text": "hello"},
        {"text": "world"},
    ]
    assert problems(asking("{{ text }}"), inputs=TEXTS) == {}
    [message] = problems(asking("{{ txt }}"), inputs=TEXTS).values()
    assert "the template names 'txt'" in message


def test_other_values_are_no_rows(problems: Any) -> None:
    inputs = {**INPUTS, "questions": {"rows": ["hello", 5]}}
    found = problems(asking("{{ text }}"), inputs=inputs)
    assert found == {"spec.inputs.questions.rows[1]": "expected a mapping, got the number 5"}


def test_a_cluster_takes_texts_too() -> None:
    rows = structural_schema(InputSpec)["properties"]["rows"]
    assert rows["items"] == {"x-kubernetes-preserve-unknown-fields": True}
