"""Messages without a connected worker, of policies, and when a fabric stops."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows

from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.runs import RunStatus, RunSummary
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.fabric import no_worker
from flowmesh_cli.verbs.run import note_replaced_policies, remove_policies, set_policies
from flowmesh_cli.verbs.up import has_unfinished_runs
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_cli.workflows.sources import read_sources
from flowmesh_control.records.run_records import summary_of


def test_workers_of_a_cluster_are_started_by_pools() -> None:
    assert "`fmesh up`" in no_worker(Target())
    said = no_worker(Target(cluster=True))
    assert "fmesh up" not in said
    assert said.endswith("pools start workers when there is work (`kubectl get fmwp -A`)")


class Runs(ApiClient):
    """Lists some runs, or fails."""

    def __init__(self, *phases: str, failure: Exception | None = None) -> None:
        super().__init__("", None)  # type: ignore[arg-type] - nothing is sent
        self._runs = [
            summary_of(RunStatus(f"u{n}", "n", "t", p, 1.0)) for n, p in enumerate(phases)
        ]
        self._failure = failure

    def get(self, path: str, kind: type[Any], **query: Any) -> list[RunSummary]:
        if self._failure is not None:
            raise self._failure
        return self._runs


@pytest.mark.parametrize(
    ("phases", "unfinished"),
    [
        ([], False),
        (["Succeeded", "Cancelled", "Failed"], False),
        (["Succeeded", "Running"], True),
        (["Suspended"], True),
    ],
)
def test_only_runs_that_have_not_ended_count_as_unfinished(
    phases: list[str], unfinished: bool
) -> None:
    assert has_unfinished_runs(Runs(*phases)) is unfinished


def test_an_unreachable_fabric_is_assumed_to_have_unfinished_runs() -> None:
    assert has_unfinished_runs(Runs(failure=CliError("away", ExitCode.NO_FABRIC)))


@dataclass
class Policies:
    """A control plane with cache policies."""

    current: dict[str, CachePolicy] = field(default_factory=dict)

    def get(self, path: str, kind: type) -> list[CachePolicy]:
        assert path == "/v1/policies"
        return list(self.current.values())

    def ask(
        self, method: str, path: str, kind: type, *, document: Any, query: Any = None
    ) -> list[CachePolicy]:
        assert (method, path) == ("PUT", "/v1/policies")
        kept = {} if query and query["only"] else self.current
        self.current = kept | {p.name: p for p in document}
        return list(self.current.values())


def test_policies_that_a_file_of_a_run_replaces_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    http, terminal = Policies(), Terminal(as_json=False)

    def given(*namespaces: str) -> str:
        sources = read_sources(WorkflowSelection([flows.policy(tmp_path, *namespaces)]))
        note_replaced_policies(terminal, set_policies(http, sources.policies))  # type: ignore[arg-type]
        return capsys.readouterr().err

    assert given("team-a", "team-b") == ""  # there was none of this name
    assert given("team-a", "team-b") == ""
    assert given("team-a", "team-c") == (
        "cache policy friends replaces the one of its name:"
        " namespaces without team-b, with team-c\n"
    )
    remove_policies(http, terminal)  # type: ignore[arg-type]
    assert capsys.readouterr().err == "removed the cache policy friends (--no-policies)\n"
    remove_policies(http, terminal)  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""
