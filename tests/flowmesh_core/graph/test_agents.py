"""What the compiler makes of agents: what their tools make of a step, and which there are."""

from typing import Any

from tests.flowmesh_core.graph.steps import INPUTS

from flowmesh_core.catalog.builtin.agent import AGENT
from flowmesh_core.catalog.resolved_contract import runs_user_code


def agent(*tools: str, **more: Any) -> dict[str, Any]:
    return {
        "uses": "llm.agent",
        "inputs": {"model": "inputs.base", "rows": "inputs.questions", "books": "inputs.questions"},
        "with": {"prompt": "{{ question }}", "tools": [*tools], **more},
    }


def test_tools_decide_whether_an_agent_is_external_and_runs_user_code(compiled) -> None:
    found = {
        tool: compiled(agent("calculator", tool), inputs=INPUTS).steps[-1]
        for tool in ("sql", "http", "python")
    }
    assert {t: p.cache.reuse for t, p in found.items()} == {
        "sql": "always",
        "http": "run",
        "python": "always",
    }
    assert [t for t, p in found.items() if runs_user_code(AGENT, p.params)] == ["python"]


def test_an_unknown_tool_is_reported_with_the_nearest_name(problems) -> None:
    [told] = problems(agent("sql", "calculater"), inputs=INPUTS).items()
    assert told[0] == "spec.steps[0].with.tools"
    assert "'calculater' is not allowed; did you mean 'calculator'?" in told[1]


def test_an_agent_without_tools_is_refused_before_a_model_loads(problems) -> None:
    assert problems(agent(), inputs=INPUTS) == {
        "spec.steps[0].with.tools": (
            "tools is empty: name one of calculator, sql, retrieve, python, http"
        )
    }


def test_a_template_with_an_unknown_column_is_reported(problems) -> None:
    [told] = problems(agent("sql", prompt="{{ qestion }}"), inputs=INPUTS).items()
    assert told[0] == "spec.steps[0].with.prompt"
