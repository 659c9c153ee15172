"""Users' code runs in a separate container beside the worker, without the worker's files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.harness.code_step import code_workflow, rows_of
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.pools import code_pool_spec, pool
from e2e.harness.user import User

POOL = "code"
USER, WORKER_USER = 10002, 10001
TOKEN = "/var/run/secrets/flowmesh/token"

CODE = """
    import os, socket
    def attempt(what):
        try:
            return repr(what())
        except BaseException as e:
            return type(e).__name__
    def main(token, gateway):
        host, _, port = gateway.partition(":")
        return [{
            "uid": os.getuid(),
            "gateway": attempt(lambda: socket.create_connection((host, int(port)), 2)),
            "socket": attempt(lambda: socket.socket()),
            "token": attempt(lambda: open(token).read()),
            "cache": attempt(lambda: os.listdir("/var/lib/flowmesh")),
            "calls": attempt(lambda: os.listdir("/run/flowmesh-code")),
            "others": attempt(lambda: [p for p in os.listdir("/proc") if p.isdigit()]),
            "signal": attempt(lambda: os.kill(1, 15)),
            "root": attempt(lambda: open("/x", "w")),
            "credentials": sorted(k for k in os.environ if k.startswith(("AWS_", "FLOWMESH_"))),
        }]
"""


@pytest.fixture(scope="module")
def code_pool(fabric: Fabric) -> Iterator[str]:
    """Yields thin workers that may run users' code, with the image of the installed thin pool."""
    with pool(fabric, POOL, code_pool_spec(fabric)) as name:
        yield name


def test_user_code_reaches_no_network_no_token_and_no_other_process(
    fabric: Fabric, code_pool: str, tenant: Callable[[], str], tmp_path: Path
) -> None:
    user = User(fabric, tenant(), tmp_path)
    user.begin()
    service = fabric.kube.get("service", "flowmesh-gateway", f"--namespace={NAMESPACE}")["spec"]
    gateway = f"{service['clusterIP']}:{service['ports'][0]['port']}"
    fabric.submit(user.namespace, "code", code_workflow(CODE, {"token": TOKEN, "gateway": gateway}))
    fabric.completed(user.namespace, "code", 180)
    (pod,) = fabric.workers(code_pool)
    (found,) = rows_of(user, "code")
    assert found == {
        "uid": USER,
        "gateway": "PermissionError",
        "socket": "PermissionError",
        "token": found["token"],
        "cache": found["cache"],
        "calls": "PermissionError",
        "others": "PermissionError",
        "signal": "PermissionError",
        "root": found["root"],
        "credentials": [],
    }
    # A missing file may be reported before a file without permission.
    nothing = {"PermissionError", "FileNotFoundError"}
    assert {found["token"], found["cache"]} <= nothing
    assert found["root"] in {"PermissionError", "OSError"}
    log = user.fmesh("logs", "code", "--step", "found").stdout
    # A pod has no control group of its own to divide; the container's limit stands above the code.
    assert log.count("without") == log.count("without a memory group"), log
    assert_apart(fabric, pod)


def assert_apart(fabric: Fabric, pod: dict[str, Any]) -> None:
    """Checks two containers with separate users and processes; only the worker has the token."""
    processes = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo"
    look = f"id -u; {processes}; test -e {TOKEN} && echo it is there"
    said = {
        container: fabric.kube.run(
            "exec", f"--namespace={NAMESPACE}", pod["metadata"]["name"], f"--container={container}",
            "--", "sh", "-c", f"{look}; true",
        )
        for container in ("worker", "code")
    }  # fmt: skip
    assert said["worker"].startswith(f"{WORKER_USER}\n")
    assert said["code"].startswith(f"{USER}\n")
    assert said["worker"].splitlines()[-1] == "it is there"
    assert said["code"].splitlines()[-1] != "it is there"
    assert "flowmesh_worker.engines.code.sidecar" in said["code"]
    assert "--token-file" not in said["code"], "the worker's processes are seen"
