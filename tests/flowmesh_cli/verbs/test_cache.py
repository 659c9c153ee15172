"""``fmesh cache stats`` counts the copies that local workers keep, beside the store."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flowmesh_api.v1.fabric import CacheStats, FabricStatus
from flowmesh_cli.main import app
from flowmesh_cli.verbs import cache

ANSWERS: dict[str, Any] = {
    "/v1/cache/stats": CacheStats(blobs=2, blob_bytes=2048, scopes=()),
    "/v1/fabric": FabricStatus(*[0] * 13),
    "/v1/quarantine": [],
}


class Answers:
    def get(self, path: str, kind: object) -> Any:
        return ANSWERS[path]


def test_the_caches_of_local_workers_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @contextmanager
    def query_fabric(_: object) -> Iterator[Answers]:
        yield Answers()

    folder = tmp_path / "workers" / "local-0" / "cache"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"x" * 3 * 1024)
    os.link(folder / "weights", folder / "same")
    (folder / "gone").symlink_to(folder / "nothing")
    monkeypatch.setattr(cache, "query_fabric", query_fabric)
    words = ["cache", "stats", "--state-dir", str(tmp_path)]
    shown = CliRunner().invoke(app, words).stdout
    assert shown.splitlines()[:2] == [
        "2 blobs, 2.0 KiB",
        f"workers' caches and logs: 3.0 KiB in {tmp_path / 'workers'}",
    ]
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["workers_bytes"] == 3072
