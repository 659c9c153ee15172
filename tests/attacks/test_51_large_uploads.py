"""Attacker: T1, a tenant with the right to upload.
Action: uploads 300 MB of honest CSV, which took 22 times its size, and rows of 4,000 columns.
Must not happen: the control plane grows by more than 64 MiB, or does not answer others meanwhile.
"""

import threading
from pathlib import Path

import orjson
import pytest
from tests.attacks.control_process import GROWTH_BYTES_MAX, ControlProcess, started

pytestmark = pytest.mark.slow
ROWS = 75_000


def large_csv(path: Path) -> None:
    text = "".join(f"{n * 7919 % 99991:05d} " for n in range(2_000))
    with path.open("w") as file:
        file.write("id,text,score\n")
        for n in range(ROWS):
            start = n * 37 % 8_000
            file.write(f"{n},{text[start : start + 4_000]},{n / 7}\n")


class Answers:
    """Asks another tenant's question again and again; called, it stops and says how often."""

    def __init__(self, control: ControlProcess) -> None:
        self._control = control
        self._stop = threading.Event()
        self._count = 0
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._stop.is_set():
            assert self._control.call("GET", "/v1/runs?namespace=team-b")[0] == 200
            self._count += 1

    def __call__(self) -> int:
        self._stop.set()
        self._thread.join()
        return self._count


def test_a_large_upload_does_not_grow_the_control_plane(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    large_csv(path)
    assert path.stat().st_size > 300_000_000
    with started(tmp_path) as control:
        small = control.call("POST", "/v1/datasets?namespace=team-a&name=s.jsonl", b'{"a": 1}')
        assert small[0] == 201
        before, answered = control.peak_bytes(), Answers(control)
        with path.open("rb") as file:
            status, told = control.call("POST", "/v1/datasets?namespace=team-a&name=l.csv", file)
        assert (status, told["rows"]) == (201, ROWS)
        assert told["columns"] == ["id", "score", "text"]
        assert control.peak_bytes() - before <= GROWTH_BYTES_MAX
        assert answered() > 0


def test_a_small_body_that_decodes_to_too_many_cells_is_refused(tmp_path: Path) -> None:
    wide = orjson.dumps({f"c{n}": n for n in range(4_000)})
    with started(tmp_path) as control:
        path = "/v1/datasets?namespace=team-a&name=wide.jsonl"
        status, told = control.call("POST", path, wide + b"\n" + b"{}\n" * 200_000)
        assert status == 400
        assert "decodes to more than" in told["error"]["message"]
        document = {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkflow",
            "metadata": {"name": "wide", "namespace": "team-a"},
            "spec": {
                "inputs": {"x": {"rows": [orjson.loads(wide), *({} for _ in range(200_000))]}},
                "steps": [{"name": "a", "uses": "test.noop"}],
            },
        }
        status, told = control.call("POST", "/v1/plan", orjson.dumps({"document": document}))
        assert status == 400, told
        assert "decodes to more than" in told["error"]["message"]
        document["spec"]["inputs"]["x"]["rows"] = [orjson.loads(wide)] * 3  # type: ignore[index]
        status, told = control.call("POST", "/v1/plan", orjson.dumps({"document": document}))
        assert status == 200, told
