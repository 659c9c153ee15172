"""``fmesh serve`` of two services with latency targets: one keeps it, one cannot."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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


def write(folder: Path, name: str, seconds: float, **target: Any) -> str:
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
            "slo": {**target, "missRate": 0.05},
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


def ask(folder: Path, name: str) -> int:
    return asked(folder, name).status_code


def asked(folder: Path, name: str) -> httpx.Response:
    found = json.loads((folder / ".flowmesh/serving/endpoint.json").read_text())
    url = f"{found['url']}/services/default/{name}:invoke"
    token = {"Authorization": f"Bearer {found['tokens'][name]}"}
    return httpx.post(url, json={"text": "a"}, headers=token, timeout=60)


@pytest.mark.slow
def test_a_target_as_a_multiple_is_measured_and_reaches_the_router(folder: Path) -> None:
    with started("serve", write(folder, "ask", 0.1, scale=3), cwd=folder) as serving:
        serving.until("Ctrl-C stops")
        assert meets_slo(folder, "ask")[:2] == ("Unknown", "NotMeasured")
        assert [ask(folder, "ask") for _ in range(24)] == [200] * 24
        until(lambda: shown(folder, "ask")["requests"]["latency_s"])
        target_s = shown(folder, "ask")["requests"]["latency_s"]
        assert 0.3 < target_s < 0.6
        text = fmesh("services", "show", "ask", cwd=folder).stdout
        assert f"{target_s * 1e3:.0f} ms, 3 times a request alone" in text

        def router_has() -> bool:
            listed = json.loads((folder / ".flowmesh/serving/services.json").read_text())
            return [s.get("slo_s") for s in listed["services"]] == [target_s]

        until(router_has)
        request_id = asked(folder, "ask").headers["X-Flowmesh-Request"]
        until(lambda: "rank: waited" in fmesh("why", request_id, cwd=folder).stdout)
        top = fmesh("services", "top", cwd=folder).stdout.splitlines()
        assert top[1].split()[:3] == ["default", "ask", "Ready"]
        forgotten = fmesh("why", "f" * 24, cwd=folder)
        assert forgotten.returncode == ExitCode.NOT_FOUND
        assert "is forgotten" in forgotten.stderr
        serving.process.send_signal(signal.SIGINT)
        assert serving.end() == ExitCode.OK


@pytest.mark.nightly
def test_a_slow_stage_is_named_and_a_fast_service_keeps_its_target(folder: Path) -> None:
    files = [
        write(folder, "slow", 0.3, latency="100ms"),
        write(folder, "fast", 0.0, latency="20s"),
    ]
    with started("serve", *files, cwd=folder) as serving:
        serving.until("Ctrl-C stops")
        assert meets_slo(folder, "fast")[:2] == ("Unknown", "FewRequests")

        with ThreadPoolExecutor(4) as threads:
            statuses = list(threads.map(partial(ask, folder), ["slow"] * 24 + ["fast"] * 24))
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
