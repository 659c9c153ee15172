"""Submitting an object: an existing one continues, and is replaced once its run has ended."""

from pathlib import Path
from typing import Any

import pytest

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.cluster import submission
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_cli.workflows.sources import Source, read_sources
from flowmesh_core.errors import SpecError
from flowmesh_sdk.workflow_objects import submit_object

FLOW = """\
apiVersion: flowmesh.dev/v1alpha1
kind: FlowMeshWorkflow
metadata: {name: other}
spec:
  steps: [{name: made, uses: data.sql, with: {query: select 1 as n}}]
"""
DOCUMENT = {"metadata": {"name": "again", "namespace": "team"}, "spec": {"steps": []}}


class FakeCluster:
    """A fake gateway and API server with one object, whose status lags."""

    default_namespace = "team"
    refusals: tuple[str, ...] = ()

    def __init__(self, said: str = "", known: str | None = None) -> None:
        self.objects = self
        self.found = {**DOCUMENT, "metadata": {**DOCUMENT["metadata"], "uid": "1"}}
        self.found["status"] = {"phase": said}
        self.known = known

    def ask(self, method: str, path: str, kind: type, *, document: dict[str, Any]) -> Any:
        assert (method, path) == ("POST", "/v1/plan")
        return type("Forecast", (), {"refusals": self.refusals})

    def create(self, document: dict[str, Any]) -> dict[str, Any] | None:
        if document["metadata"]["name"] == "again":
            return None
        self.known = "Running"
        return {**document, "metadata": {**document["metadata"], "uid": "2"}}

    def read(self, namespace: str, name: str) -> dict[str, Any]:
        assert (namespace, name) == ("team", "again")
        return self.found

    def find(self, path: str, kind: type) -> Any:
        known, self.known = self.known, self.known or "Running"
        return None if known is None else kind(known)


@pytest.mark.parametrize(
    ("said", "known", "uid"),
    [
        ("Running", "Running", "1"),
        ("Running", "Succeeded", "2"),  # the status is a moment late
        ("", None, "1"),  # not taken in yet
        ("Succeeded", None, "2"),  # forgotten by the fabric
    ],
)
def test_an_object_is_resumed_until_the_fabric_reports_that_its_run_has_ended(said, known, uid):
    fake = FakeCluster(said, known)
    run = submit_object(fake, fake, DOCUMENT, {})
    assert (run.uid, run.resumed) == (uid, uid == "1")


def test_a_refusal_by_the_gateway_is_reported():
    class Refuses(FakeCluster):
        def find(self, path: str, kind: type) -> Any:
            raise CliError("you may not", ExitCode.REFUSED)

    fake = Refuses("Running", None)
    with pytest.raises(CliError, match="you may not"):
        submit_object(fake, fake, DOCUMENT, {})


@pytest.fixture
def source(tmp_path: Path) -> Source:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    (found,) = read_sources(WorkflowSelection([file])).workflows
    return found


def test_a_budget_that_cannot_be_met_is_refused_with_the_file(source):
    fake = FakeCluster()
    fake.refusals = ("spec.budgetUsd: it would cost $2",)
    with pytest.raises(FilesError, match=r"flow\.yaml:4:\d+: spec.budgetUsd: it would") as refused:
        submission.submit_object(fake, source)
    assert refused.value.code == ExitCode.REFUSED


def test_an_object_that_the_operator_refuses_is_a_mistake_in_the_file(source):
    class Refuses(FakeCluster):
        def read(self, namespace: str, name: str) -> dict[str, Any]:
            accepted = {"type": "Accepted", "status": "False", "message": "a limit"}
            failed = {"type": "Failed", "status": "True"}
            return {"metadata": {"name": name}, "status": {"conditions": [accepted, failed]}}

        def find(self, path: str, kind: type) -> Any:
            return None

    with pytest.raises(CliError, match=r"flow\.yaml: team/other: a limit") as refused:
        submission.submit_object(Refuses(), source)
    assert refused.value.code == ExitCode.USAGE
    assert "kubectl delete fmw" in refused.value.remedy


def test_problems_that_the_control_plane_finds_have_their_lines(source):
    class Finds(FakeCluster):
        def ask(self, *request: Any, **given: Any) -> Any:
            raise SpecError([Problem("spec.steps[0].uses", "no engine 'data.sqll'")])

    with pytest.raises(FilesError, match=r"flow\.yaml:5:\d+: spec.steps\[0\].uses: no engine"):
        submission.submit_object(Finds(), source)
