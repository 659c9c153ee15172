"""Attacker: T4, user code of a Python component of a service.
Action: reads files, opens the network, finds credentials, takes memory, and floods its host.
Must not happen: any of it succeeds, or calls of others fail; the code still answers its callers.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.stage_stack import python, stage_stack, together
from tests.flowmesh_worker.test_code_sidecar import Sidecar

pytestmark = pytest.mark.slow
CODE = """
import os, socket

def compute(batch):
    return [attempt(call["what"], call["path"]) for call in batch]

def attempt(what, path):
    try:
        if what == "memory":
            return len(bytearray(2 << 30))
        if what == "flood":
            return "x" * (9 << 20)
        if what == "forge":
            for descriptor in range(3, 64):
                try:
                    os.write(descriptor, b"\\xff\\xff\\xff\\xff" + b"x" * 100)
                except OSError:
                    pass
            return "forged"
        if what == "read":
            return open(path).read()
        if what == "list":
            return os.listdir(os.path.dirname(path))
        if what == "network":
            return str(socket.create_connection(("127.0.0.1", 1)))
        if what == "unix":
            return str(socket.socket(socket.AF_UNIX))
        if what == "credentials":
            return [k for k in os.environ if k.startswith(("AWS_", "FLOWMESH_", "HF_"))]
        if what == "parent":
            return os.listdir(f"/proc/{os.getppid()}")
    except BaseException as error:
        return f"refused: {type(error).__name__}"
    return "answered"
"""
SPEC: dict[str, Any] = {
    "components": {"only": python(CODE, "compute", resources={"memory": "128Mi"})},
    "stages": [
        {
            "name": "one",
            "component": "only",
            "inputs": {"what": "request.what", "path": "request.path"},
        }
    ],
    "reply": {"out": "one"},
}


@pytest.fixture(params=["in the host", "in a container"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where the code runs: beside the engine host, or as in a pod that runs users' code apart."""
    with tempfile.TemporaryDirectory(prefix="code-", dir="/tmp") as folder, ExitStack() as stack:
        if request.param == "in a container":
            monkeypatch.setenv("FLOWMESH_CODE_SOCKET", f"{folder}/socket")
            sidecar = Sidecar(Path(folder) / "socket")
            stack.callback(sidecar.process.wait, 30)
            stack.callback(sidecar.process.terminate)
        yield


@pytest.mark.usefixtures("place")
async def test_a_component_reaches_nothing_of_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a key")
    monkeypatch.setenv("FLOWMESH_SECRET", "a secret")
    secret = tmp_path / "secret"
    secret.write_text("the worker's")
    async with stage_stack(tmp_path, SPEC, {"w1": ["only"]}) as stack:

        async def tried(what: str) -> tuple[int, Any]:
            status, body = await stack.ask({"what": what, "path": str(secret)})
            return status, body.get("out", body)

        for what in ("read", "list", "network", "unix", "memory"):
            status, out = await tried(what)
            assert (status, str(out).startswith("refused")) == (200, True), (what, out)
        assert await tried("credentials") == (200, [])
        status, out = await tried("flood")
        assert (status, "8388608" in out["error"]["message"]) == (500, True)
        assert await tried("nothing") == (200, "answered")


@pytest.mark.usefixtures("place")
async def test_a_component_that_writes_to_its_connection_fails_alone(tmp_path: Path) -> None:
    async with stage_stack(tmp_path, SPEC, {"w1": ["only"]}) as stack:
        forged, *others = await together(
            stack.ask({"what": "forge", "path": ""}),
            *(stack.ask({"what": "nothing", "path": ""}) for _ in range(8)),
        )
        assert forged[0] == 500
        assert others == [(200, {"out": "answered"})] * 8
        assert await stack.ask({"what": "nothing", "path": ""}) == (200, {"out": "answered"})
