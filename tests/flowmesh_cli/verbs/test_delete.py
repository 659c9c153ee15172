"""``fmesh delete``: which runs it deletes, and what it refuses before it deletes any."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from flowmesh_api.v1.runs import DeletedRun, RunSummary
from flowmesh_cli.cluster.gateway import ClusterGateway
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.target import HERE
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.verbs import delete

DAY_S = 86_400.0


def run(uid: str, phase: str = "Succeeded", days_ago: float = 1.0) -> RunSummary:
    ended_s = time.time() - days_ago * DAY_S if phase != "Running" else 0.0
    return RunSummary(uid, f"name-of-{uid}", "team-a", phase, 1.0, ended_s)


class Answers:
    """Lists runs, and deletes them but for ``of-a-batch``."""

    namespace, default_namespace = "team-a", "team-a"

    def __init__(self, runs: list[RunSummary]) -> None:
        self.runs = runs
        self.deleted: list[str] = []

    def get(self, path: str, kind: type[Any], **query: Any) -> Any:
        assert path == "/v1/runs"
        return self.runs

    def ask(self, method: str, path: str, kind: type[Any]) -> Any:
        assert method == "DELETE"
        uid = path.rpartition("/")[2]
        if uid == "of-a-batch":
            raise CliError(f"run {uid} belongs to a batch", ExitCode.REFUSED)
        if uid == "gone":
            raise CliError("there is no run 'gone'", ExitCode.NOT_FOUND)
        self.deleted.append(uid)
        return DeletedRun(uid, "", "")


class OnLaptop(Answers, ApiClient):
    """A fabric of this machine."""


class Objects:
    def __init__(self) -> None:
        self.deleted: list[tuple[str, str, str]] = []

    def delete(self, namespace: str, name: str, uid: str) -> None:
        self.deleted.append((namespace, name, uid))


class OnCluster(Answers, ClusterGateway):
    """A cluster's."""

    def __init__(self, runs: list[RunSummary]) -> None:
        super().__init__(runs)
        self.__dict__["objects"] = Objects()


def on(monkeypatch: pytest.MonkeyPatch, fabric: Any) -> Any:
    @contextmanager
    def query_fabric(_: object) -> Iterator[Any]:
        yield fabric

    monkeypatch.setattr(delete, "query_fabric", query_fabric)
    return fabric


def delete_runs(*named: str, older_than: str = "", as_json: bool = False) -> None:
    delete.delete_runs(named, older_than=older_than, yes=True, place=HERE, as_json=as_json)


def test_named_runs_are_deleted_and_one_that_is_gone_already_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fabric = on(monkeypatch, OnLaptop([run("one"), run("two"), run("gone")]))
    delete_runs("one", "name-of-two", "one", "gone")
    assert fabric.deleted == ["one", "two"]
    assert capsys.readouterr().out == "one deleted\ntwo deleted\ngone deleted\n"


def test_nothing_is_deleted_where_one_of_them_has_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fabric = on(monkeypatch, OnLaptop([run("one"), run("live", "Running")]))
    with pytest.raises(CliError, match=r"run live has not ended \(Running\)") as refused:
        delete_runs("one", "live")
    assert refused.value.code == ExitCode.REFUSED
    assert refused.value.remedy == "`fmesh cancel live` ends it; then delete it"
    assert fabric.deleted == []


def test_old_runs_are_those_that_ended_longer_ago_and_those_of_batches_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = [run("old", days_ago=31), run("of-a-batch", days_ago=31), run("live", "Running")]
    fabric = on(monkeypatch, OnLaptop([*old, run("new", "Failed", days_ago=29)]))
    delete_runs(older_than="30d")
    assert fabric.deleted == ["old"]
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("old deleted\n", "run of-a-batch belongs to a batch\n")
    delete_runs(older_than="60d")
    assert capsys.readouterr().out == "no run ended more than 60d ago\n"
    with pytest.raises(CliError, match="'a month' is not a duration"):
        delete_runs(older_than="a month")
    with pytest.raises(CliError, match="expected either runs or --older-than"):
        delete_runs()


def test_on_a_cluster_the_object_is_deleted_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fabric = on(monkeypatch, OnCluster([run("one")]))
    delete_runs("one", as_json=True)
    assert fabric.objects.deleted == [("team-a", "name-of-one", "one")]
    assert fabric.deleted == ["one"]
    assert '"uid": "one"' in capsys.readouterr().out
