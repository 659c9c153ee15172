"""``fmesh serve`` of two services with latency targets: one keeps it, one cannot."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.flowmesh_cli.calling import end_workers, fmesh, started, until

from flowmesh_cli.exit_codes import ExitCode

CODE = """
import time

def first(calls):
    return [{"text": call["text"]} for call in calls]

def second(calls):
    time.sleep(SECONDS)
    return [{"text": call["text"]} for call in calls]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_workers(tmp_path)


def write(folder: Path, name: str, seconds: float, latency: str) -> str:
    """Writes the file of a service of two stages, the second of which takes this long."""
    code = CODE.replace("SECONDS", str(seconds))
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": name},
        "spec": {
            "components": {
                part: {"python": {"code": code, "function": part}} for part in ("first", "second")
            },
            "stages": [
                {"name": "read", "component": "first", "inputs": {"text": "request.text"}},
                {"name": "rank", "component": "second", "inputs": {"text": "read.text"}},
            ],
            "reply": {"text": "rank.text"},
            "slo": {"latency": latency, "missRate": 0.05},
        },
    }
    (folder / f"{name}.json").write_text(json.dumps(document))
    return f"{name}.json"


def shown(folder: Path, name: str, *verb: str) -> dict[str, Any]:
    done = fmesh("services", *(verb or ("show",)), name, "--json", cwd=folder)
    assert done.returncode == ExitCode.OK, done.stderr
    return dict(json.loads(done.stdout))


def meets_slo(folder: Path, name: str) -> tuple[str, str, str]:
    conditions = {c["type"]: c for c in shown(folder, name)["conditions"]}
    found = conditions["MeetsSlo"]
    return found["status"], found["reason"], found.get("message", "")


@pytest.mark.nightly
def test_a_slow_stage_is_named_and_a_fast_service_keeps_its_target(folder: Path) -> None:
    files = [write(folder, "slow", 0.3, "100ms"), write(folder, "fast", 0.0, "20s")]
    with started("serve", *files, cwd=folder) as serving:
        serving.until("Ctrl-C stops")
        found = json.loads((folder / ".flowmesh/serving/endpoint.json").read_text())
        assert meets_slo(folder, "fast")[:2] == ("Unknown", "FewRequests")

        def ask(name: str) -> int:
            url = f"{found['url']}/services/default/{name}:invoke"
            token = {"Authorization": f"Bearer {found['tokens'][name]}"}
            return httpx.post(url, json={"text": "a"}, headers=token, timeout=60).status_code

        with ThreadPoolExecutor(4) as threads:
            statuses = list(threads.map(ask, ["slow"] * 24 + ["fast"] * 24))
        assert statuses == [200] * 48
        until(lambda: meets_slo(folder, "slow")[0] == "False")
        until(lambda: meets_slo(folder, "fast") == ("True", "RepliesInTime", ""))
        status, reason, message = meets_slo(folder, "slow")
        assert (status, reason) == ("False", "StagesTooSlow")
        assert "the target is 100 ms; stage rank (component second) alone takes 3" in message
        requests = shown(folder, "slow")["requests"]
        assert (requests["ended"], requests["missed"]) == (24, 24)
        assert requests["p50_s"] > 0.25
        curve = shown(folder, "fast", "capacity")
        assert [s["stage"] for s in curve["stages"]] == ["read", "rank"]
        assert len(curve["points"]) == 5
        assert curve["points"][-1]["rate_per_s"] < curve["best_per_s"]
        assert all(p["p50_s"] <= p["p99_s"] < 20 for p in curve["points"])
        table = fmesh("services", "capacity", "fast", cwd=folder).stdout
        assert "measured" in table
        assert "predicted" in table
        listed = fmesh("services", "list", cwd=folder).stdout
        assert "stage rank" in listed
        serving.process.send_signal(signal.SIGINT)
        assert serving.end() == ExitCode.OK
