"""Messages without a connected worker, and when a fabric stops."""

from typing import Any

import pytest

from flowmesh_api.v1.runs import RunStatus, RunSummary
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.verbs.fabric import no_worker
from flowmesh_cli.verbs.up import has_unfinished_runs
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
