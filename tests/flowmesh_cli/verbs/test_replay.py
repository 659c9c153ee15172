"""``fmesh trace`` and ``fmesh replay`` say which runs have nothing to replay."""

from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_sim.replay.test_replay import CHAIN, run

from flowmesh_api.v1.trace import RecordedRun
from flowmesh_cli.connection.target import HERE
from flowmesh_cli.verbs import replay

CANCELLED = run("gone-2", phase="Cancelled", created_s=1001.0)
WHY = "it was cancelled before any attempt had a worker"


class Laptop:
    """A client of a fabric with two runs."""

    namespace = default_namespace = ""

    def get(self, path: str, kind: type, **query: Any) -> Any:
        assert kind is RecordedRun
        return CHAIN if "run-1" in path else CANCELLED


def test_a_run_that_is_left_out_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def query_fabric(_: object) -> Any:
        yield Laptop()

    monkeypatch.setattr(replay, "query_fabric", query_fabric)
    monkeypatch.setattr(replay, "find_run", lambda _, name: name)
    file = tmp_path / "all.jsonl"
    replay.export_trace(["run-1", "gone-2"], every=False, out=file, place=HERE)
    assert f"gone-2 has nothing to replay: {WHY}\n" in capsys.readouterr().err
    replay.replay_file(file, policy=None, plot=None, as_json=False)
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("1 run replayed")
    assert out[1] == f"  left out: number 2 in order of submission: {WHY}"
