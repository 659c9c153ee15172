"""``fmesh status`` on a cluster ends with what is left of the namespace's quota."""

from contextlib import contextmanager
from typing import Any

import pytest

from flowmesh_api.v1.quotas import QuotaLimit, QuotaUsage
from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.connection.target import HERE, Target
from flowmesh_cli.verbs import manage_runs

USAGE = QuotaUsage("t", "every-team", 1.0, (QuotaLimit("unfinished runs", 200.0, 12.0),))


class Answers:
    """Answers ``/v1/runs/…`` and ``/v1/quota``, and nothing else."""

    namespace, default_namespace = "", ""

    def get(self, path: str, kind: type[Any], **query: Any) -> Any:
        if path == "/v1/quota":
            assert query == {"namespace": "t"}
            return USAGE
        return RunStatus("u1", "n", "t", "Running", 1.0)

    def where_allowed(self, path: str, kind: type[Any], **query: Any) -> Any:
        return self.get(path, kind, **query)


@pytest.mark.parametrize(("place", "shown"), [(Target(cluster=True), True), (HERE, False)])
def test_the_quota_is_shown_on_a_cluster_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Target, shown: bool
) -> None:
    @contextmanager
    def query_fabric(_: object) -> Any:
        yield Answers()

    monkeypatch.setattr(manage_runs, "query_fabric", query_fabric)
    monkeypatch.setattr(manage_runs, "find_run", lambda http, run: "u1")
    monkeypatch.setattr(manage_runs, "all_runs", lambda http: [])
    manage_runs.show_status("", every=False, place=place, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("t/n u1: Running")
    assert (lines[-1] == "left of t's quota every-team: unfinished runs 188 of 200") is shown
