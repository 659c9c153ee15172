"""What the compiler makes of steps that call out: their secrets, whether they may be repeated."""

from typing import Any

from tests.flowmesh_core.catalog.built_in import builtin_catalog
from tests.flowmesh_core.graph.steps import INPUTS

from flowmesh_core.catalog.resolved_contract import repeatable


def request(**more: Any) -> dict[str, Any]:
    given = {"url": "https://api.example.com/{{ question }}", **more}
    return {"uses": "http.request", "inputs": {"rows": "inputs.questions"}, "with": given}


def test_a_secret_that_a_parameter_names_is_sent_with_the_steps_secrets(compiled) -> None:
    step = {**request(secret="api-key"), "secrets": ["other", "api-key"]}
    [plan] = compiled(step, inputs=INPUTS).steps[-1:]
    assert plan.secrets == ("other", "api-key")
    assert compiled(request(), inputs=INPUTS).steps[-1].secrets == ()


def test_an_invalid_secret_name_is_refused(problems) -> None:
    [told] = problems(request(secret="../etc/passwd"), inputs=INPUTS).items()
    assert told[0] == "spec.steps[0].with.secret"
    assert "expected a name of letters" in told[1]


def test_results_of_calls_are_reused_only_within_their_run(compiled) -> None:
    assert compiled(request(), inputs=INPUTS).steps[-1].cache.reuse == "run"


def test_whether_a_call_is_repeatable_follows_from_its_parameters(compiled) -> None:
    contract = builtin_catalog().newest("http.request")
    assert contract is not None

    def twice(**more: Any) -> bool:
        return repeatable(contract, compiled(request(**more), inputs=INPUTS).steps[-1].params)

    assert twice()
    assert not twice(method="POST")
    assert twice(method="POST", idempotent=True)
