"""One ``fmesh up`` for many cases, with a check that it still serves."""

import itertools
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import Started, fmesh, owner, started, until

WITHIN_S = 400.0
_numbers = itertools.count(1)


class SharedFabric:
    """A folder that ``fmesh up`` serves."""

    def __init__(self, folder: Path, up: Started) -> None:
        self.folder = folder
        self.up = up

    @property
    def store(self) -> Path:
        return self.folder / ".flowmesh"

    def run(
        self, spec: dict[str, Any], *arguments: str, name: str = "case"
    ) -> subprocess.CompletedProcess[str]:
        """Runs ``fmesh run`` of one workflow."""
        flow = flows.write(self.folder, name, spec)
        return fmesh("run", flow, *arguments, cwd=self.folder, timeout_s=WITHIN_S)

    def answer(self, spec: dict[str, Any], name: str = "case") -> dict[str, Any]:
        """Runs one workflow, which must succeed; returns its run."""
        done = self.run(spec, "--json", name=name)
        assert done.returncode == 0, done.stderr
        (run,) = json.loads(done.stdout)["runs"]
        return run

    def answers(self, specs: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """Runs workflows in one command, which must succeed; returns the runs by name."""
        files = [flows.write(self.folder, name, spec) for name, spec in specs.items()]
        done = fmesh("run", *files, "--json", cwd=self.folder, timeout_s=WITHIN_S)
        assert done.returncode == 0, done.stderr
        runs: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
        return runs

    def still_serves(self) -> None:
        """Checks that a new workflow succeeds on the same fabric."""
        assert self.up.process.poll() is None, self.up.said
        number = next(_numbers)
        query = f"select {number} as number, range as i from range(3) order by all"
        spec = {
            "steps": [{"name": "good", "uses": "data.sql", "with": {"query": query}}],
            "outputs": {"rows": "good.rows"},
        }
        metadata = {"name": "good", "namespace": "team-good"}
        document = {"apiVersion": flows.API, "kind": "FlowMeshWorkflow", "metadata": metadata}
        uid = self.call("POST", "/v1/runs", {"document": {**document, "spec": spec}})["uid"]
        until(lambda: self.phase(uid) in ("Succeeded", "Failed"), within_s=WITHIN_S)
        assert self.phase(uid) == "Succeeded"

    def phase(self, uid: str) -> str:
        return self.call("GET", f"/v1/runs/{uid}")["phase"]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request to the API."""
        known = owner(self.folder)
        request = urllib.request.Request(
            known["url"] + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {known['token']}"},
        )
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            return json.load(answer)


@contextmanager
def shared_fabric(folder: Path) -> Iterator[SharedFabric]:
    """Serves a folder during a block; checks that it stops without errors."""
    with started("up", cwd=folder) as up:
        up.until("Ctrl-C stops")
        yield SharedFabric(folder, up)
        up.process.terminate()
        assert up.end() == 0, up.said
