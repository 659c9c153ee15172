"""Which fabric a program gets."""

import fcntl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import flowmesh_sdk as fm
from flowmesh_api.v1.version import VERSION_HEADER
from flowmesh_sdk import local_fabric
from flowmesh_sdk.http import client as http_client

ASKING: dict[str, Any] = {
    "apiVersion": "flowmesh.dev/v1alpha1",
    "kind": "FlowMeshWorkflow",
    "metadata": {"name": "ask"},
    "spec": {
        "inputs": {"base": {"model": "smollm2-135m-instruct"}, "rows": {"rows": [{"q": "a"}]}},
        "steps": [
            {
                "name": "ask",
                "uses": "llm.generate",
                "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
                "with": {"prompt": "{{ q }}"},
            }
        ],
    },
}
DATA = {"name": "all", "uses": "data.sql", "with": {"query": "select * from rows"}}
URL = "https://flowmesh.example.com:8470"


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVER", "TOKEN", "CA", "STATE_DIR"):
        monkeypatch.delenv(f"FLOWMESH_{name}", raising=False)


def test_a_server_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fm.FlowMeshError, match="set FLOWMESH_TOKEN"):
        fm.connect(URL)
    monkeypatch.setenv("FLOWMESH_SERVER", URL)
    monkeypatch.setenv("FLOWMESH_TOKEN", "secret")
    assert fm.connect(namespace="team-a").namespace == "team-a"


@pytest.mark.parametrize(
    "server", ["flowmesh.example.com", "ftp://a", "http://flowmesh.example.com"]
)
def test_an_address_that_cannot_be_used_is_refused(server: str) -> None:
    with pytest.raises(fm.FlowMeshError, match="https://"):
        fm.connect(server, token="secret")


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    with pytest.raises(fm.FlowMeshError, match="give a PEM file"):
        fm.connect(URL, token="secret", ca=str(file))


def test_without_a_fabric_nothing_is_started_where_that_is_not_wished(tmp_path: Path) -> None:
    with pytest.raises(fm.NoFabricError, match="run `fmesh up` there"):
        fm.connect(state_dir=tmp_path, start=False)
    (tmp_path / "owner").write_text('{"pid": 1, "url": "http://127.0.0.1:9", "token": "t"}')
    with pytest.raises(fm.NoFabricError):  # nobody has the lock: its owner is dead
        fm.connect(state_dir=tmp_path, start=False)


def test_the_client_alone_says_how_to_get_a_fabric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_fabric.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(fm.NoFabricError, match="from a clone as its README says"):
        fm.connect(state_dir=tmp_path)


def test_a_fabric_that_does_not_start_is_reported_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file is in the way")
    with pytest.raises(fm.NoFabricError, match="did not start: "):
        fm.connect(state_dir=tmp_path / "state")


class OtherRelease(BaseHTTPRequestHandler):
    """A control plane of another release, without runs."""

    version = ""

    def do_GET(self) -> None:
        self.send_response(200)
        if self.version:
            self.send_header(VERSION_HEADER, self.version)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def other_release(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(http_client, "API_VERSION", "1.2")
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherRelease) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("version", ["2.0", "0.9", "1.1"])
def test_a_running_fabric_whose_api_lacks_what_the_client_needs_is_refused_with_both_versions(
    version: str, other_release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtherRelease, "version", version)
    owner = tmp_path / "owner"
    owner.write_text(f'{{"pid": 1, "url": "{other_release}", "token": "t"}}')
    with owner.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as the process that serves the folder
        for client in (fm.connect(state_dir=tmp_path), fm.connect(other_release, token="t")):
            with client, pytest.raises(fm.FlowMeshError) as refused:
                client.list_runs()
            error = refused.value
            assert error.where == f"fabric at {other_release}"
            assert error.message == f"it has version {version} of the API, this client needs 1.2"
            assert "install the client of its release" in error.remedy


@pytest.mark.parametrize("version", ["1.2", "1.10", "", "none"])
def test_a_newer_fabric_is_used_and_what_names_no_version_is_judged_by_its_answers(
    version: str, other_release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtherRelease, "version", version)
    with fm.connect(other_release, token="t") as client:
        assert client.list_runs() == []


@pytest.fixture
def base_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fakes an installation without the worker extras, in child processes too."""
    libraries = ("torch", "vllm", "transformers", "trl", "peft")
    hidden = tmp_path / "site"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "real = importlib.util.find_spec\n"
        "def find_spec(name, package=None):\n"
        f"    return None if name in {libraries} else real(name, package)\n"
        "importlib.util.find_spec = find_spec\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(hidden))
    real = local_fabric.importlib.util.find_spec
    monkeypatch.setattr(
        local_fabric.importlib.util,
        "find_spec",
        lambda name: None if name in libraries else real(name),
    )
    monkeypatch.setenv("FLOWMESH_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_workflow_that_needs_the_worker_extra_is_refused_before_a_fabric_is_started(
    base_install: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(folder: Path) -> None:
        raise AssertionError("a fabric was started")

    monkeypatch.setattr(local_fabric, "start", start)
    with pytest.raises(fm.NoFabricError, match=r"ask \(llm\.generate\).*torch") as refused:
        fm.load(ASKING).run()
    assert refused.value.where == "default/ask"
    assert f"pip install --python {sys.executable} 'flowmesh-fabric[worker-" in refused.value.remedy
    assert not base_install.exists()
    data = {**ASKING["spec"], "steps": [{**DATA, "inputs": {"rows": "inputs.rows"}}]}
    with pytest.raises(AssertionError, match="a fabric was started"):
        fm.load({**ASKING, "spec": {**data, "inputs": {"rows": {"rows": [{"q": "a"}]}}}}).run()


def test_the_package_loads_a_module_when_a_name_of_it_is_used() -> None:
    code = (
        "import sys, flowmesh_sdk as fm\n"
        "before = [m for m in sys.modules if m.startswith('flowmesh_sdk.')]\n"
        "assert all(getattr(fm, name).__name__ == name for name in fm.__all__)\n"
        "assert dir(fm) == fm.__all__\n"
        "print(before, hasattr(fm, 'lod'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"
