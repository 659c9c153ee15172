"""A budget or a deadline that cannot be met is refused with its place in the file."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli.calling import fmesh

from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.verbs.run import submit
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_cli.workflows.sources import read_sources
from flowmesh_sdk.http.client import ErrorResponse

FLOW = """\
apiVersion: flowmesh.dev/v1alpha1
kind: FlowMeshWorkflow
metadata: {name: dear}
spec:
  budgetUsd: "0.000000001"
  deadline: 1s
  steps: [{name: made, uses: data.sql, with: {query: select 1 as n}}]
"""
BUDGET = (
    "spec.budgetUsd: expected to cost at least $2, and the budget is $1; raise it or ask for less"
)
DEADLINE = "spec.deadline: expected to take at least 9 s; raise it or add workers"


class Refusing(ApiClient):
    """A control plane that refuses a submission for its terms."""

    def __init__(self) -> None:
        self.default_namespace = ""

    def ask(self, *_: Any, **__: Any) -> Any:
        raise self.refused(ErrorResponse(402, f"{BUDGET}; {DEADLINE}", "dear"))


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    return file


def test_each_refused_term_of_a_submission_has_its_line(flow: Path) -> None:
    (source,) = read_sources(WorkflowSelection([flow])).workflows
    with pytest.raises(FilesError) as refused:
        submit(Refusing(), source)
    assert refused.value.code == ExitCode.REFUSED
    assert refused.value.lines == [f"{flow}:5:3: {BUDGET}", f"{flow}:6:3: {DEADLINE}"]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["plan", "run"])
def test_a_budget_is_refused_before_anything_runs(flow: Path, verb: str) -> None:
    done = fmesh(verb, flow, cwd=flow.parent)
    assert done.returncode == ExitCode.REFUSED
    assert re.search(
        rf"{flow}:5:\d+: spec\.budgetUsd: expected to cost at least \$\S+,", done.stderr
    )
