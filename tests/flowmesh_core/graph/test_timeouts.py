"""A step's timeout is checked against what its engine allows."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.flowmesh_core.graph.conftest import Compile, Problems


def query(timeout: str) -> dict[str, object]:
    return {"name": "q", "uses": "data.sql", "with": {"query": "select 1 as a"}, "timeout": timeout}


@pytest.mark.parametrize("timeout", ["25h", "2d", "24h1s"])
def test_a_timeout_above_the_engines_maximum_is_refused(problems: "Problems", timeout: str) -> None:
    assert problems(query(timeout)) == {
        "spec.steps[0].timeout": "an attempt of data.sql may run 24h at most;"
        " write 24h or less, or split the step"
    }


def test_the_maximum_timeout_is_accepted(compiled: "Compile") -> None:
    (step,) = compiled(query("24h")).steps
    assert step.timeout_s == 86_400


def test_a_fetched_input_gets_the_maximum_timeout_since_it_cannot_set_one(
    compiled: "Compile",
) -> None:
    plan = compiled(
        {
            "name": "n",
            "uses": "data.sql",
            "inputs": {"x": "inputs.far"},
            "with": {"query": "select * from x"},
        },
        inputs={"far": {"dataset": "https://example.org/rows.jsonl"}},
    )
    fetched = [s for s in plan.steps if s.path.startswith("inputs.")]
    assert fetched
    assert {s.timeout_s for s in fetched} == {86_400}
