"""The value of a step's secret reaches only the server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import fmesh, owner

pytestmark = pytest.mark.slow

SECRET = "tok-4f9a-never-to-be-told"


class Server(ThreadingHTTPServer):
    """Echoes the request, with the status in the path."""

    folder: Path
    authorized: list[str]
    seen_by_workers: list[int]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        said = self.headers["Authorization"]
        self.server.authorized.append(said)
        for pid in owner(self.server.folder)["workers"].values():
            worker = psutil.Process(pid)
            for process in [worker, *worker.children(recursive=True)]:
                if SECRET in str(process.environ()):
                    self.server.seen_by_workers.append(process.pid)
        body = f"you sent {said}".encode()
        self.send_response(int(self.path.strip("/")))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        del args


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("FLOWMESH_HTTP_ALLOW", "127.0.0.1/32")
    monkeypatch.setenv("FMESH_SECRET_API_KEY", SECRET)
    with Server(("127.0.0.1", 0), Handler) as one:
        one.folder, one.authorized, one.seen_by_workers = tmp_path, [], []
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        yield one
        one.shutdown()
        thread.join()


def calling(name: str, port: int, source: str) -> dict[str, object]:
    return {
        "name": name,
        "uses": "http.request",
        "inputs": {"rows": source},
        "with": {"url": f"http://127.0.0.1:{port}/{{{{ status }}}}", "secret": "api-key"},
    }


def test_a_secret_reaches_the_server_and_is_stored_nowhere(tmp_path: Path, server: Server) -> None:
    port = server.server_port
    good, bad = (
        flows.write(
            tmp_path,
            name,
            {
                "inputs": {"rows": {"rows": [{"status": status}]}},
                "steps": [calling("ask", port, "inputs.rows")],
                "outputs": {"answers": "ask.rows"},
            },
        )
        for name, status in (("good", 200), ("bad", 401))
    )
    said = [fmesh("run", good, "--json", cwd=tmp_path)]
    said.append(fmesh("outputs", "--download", "out", cwd=tmp_path))  # the store's are compressed
    [answers] = (tmp_path / "out").rglob("answers.jsonl")
    assert json.loads(answers.read_text())["response"] == "you sent Bearer [secret]"
    said.append(fmesh("run", bad, cwd=tmp_path))
    assert "you sent Bearer [secret]" in said[-1].stderr
    assert server.authorized == [f"Bearer {SECRET}"] * 2
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) > 10
    assert not [p for p in files if SECRET.encode() in p.read_bytes()]
    assert not [s for s in said if SECRET in s.stdout + s.stderr]
    assert server.seen_by_workers == []
