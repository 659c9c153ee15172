"""``fmesh why`` with the id of a request, at a router that is played by a small server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.router import Endpoint
from flowmesh_cli.verbs.why_request import is_request, show_request

ID = "5f0c2a9e1b7d4c3380aa19e6"
CALL = {"stage": None, "replica": "default/smol/llm/r1/0", "queue_s": 0.25, "compute_s": 0.5}
ENDED: dict[str, Any] = {
    "id": ID,
    "object": "service.request",
    "service": "default/smol",
    "path": "/v1/chat/completions",
    "state": "ended",
    "outcome": "ok",
    "code": None,
    "release": "r1",
    "created": 1000.0,
    "ended": 1001.0,
    "calls": [CALL],
}


class Router(HTTPServer):
    """Answers with one status; of other services it knows no request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = ENDED
        self.asked: list[tuple[str, str | None]] = []


class Handler(BaseHTTPRequestHandler):
    server: Router

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        is_known = self.path == f"/v1/services/default/smol/requests/{ID}"
        answer = self.server.status if is_known else {"error": {"message": "unknown"}}
        self.send_response(200 if is_known else 404)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    with Router() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        services = {"ask": "default/ask", "smol": "default/smol"}
        found = Endpoint(
            f"http://127.0.0.1:{server.server_port}/v1",
            {"ask": "fm-1", "smol": "fm-2"},
            services=services,
        )
        (tmp_path / "serving").mkdir()
        (tmp_path / "serving/endpoint.json").write_bytes(msgspec.json.encode(found))
        yield server
        server.shutdown()
        thread.join()


def said(folder: Path, capsys: pytest.CaptureFixture[str], *, as_json: bool = False) -> str:
    show_request(ID, place=Target(state_dir=folder), as_json=as_json)
    return capsys.readouterr().out


def test_the_time_of_a_call_is_split(
    router: Router, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(tmp_path, capsys).splitlines() == [
        f"request   {ID} to default/smol, /v1/chat/completions",
        "state     ended, ok, after 1000 ms",
        "release   r1",
        "call      waited 250 ms, ran 500 ms at default/smol/llm/r1/0",
        "elsewhere 250 ms: router, connections, and its client",
    ]
    assert [token for _, token in router.asked] == ["Bearer fm-1", "Bearer fm-2"]
    assert json.loads(said(tmp_path, capsys, as_json=True)) == ENDED


def test_stages_are_listed_with_what_each_took(
    router: Router, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = [{**CALL, "stage": "query"}, {**CALL, "stage": "best", "compute_s": None}]
    router.status = {**ENDED, "outcome": "failed", "code": "user_code", "calls": stages}
    text = said(tmp_path, capsys)
    assert "stage     query: waited 250 ms, ran 500 ms at default/smol/llm/r1/0\n" in text
    assert "stage     best: at default/smol/llm/r1/0, which did not say" in text
    assert "ended, failed, after 1000 ms: user_code, a Python component failed on it\n" in text
    assert "elsewhere" not in text


def test_a_request_in_flight_shows_its_stages(
    router: Router, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flying = {**ENDED, "state": "running", "outcome": None, "ended": None, "release": None}
    del flying["calls"]
    router.status = {**flying, "stages": [{"name": "query", "state": "queued"}]}
    lines = said(tmp_path, capsys).splitlines()
    assert lines[1:] == ["state     running", "stage     query: queued"]


def test_a_refused_request_says_why(
    router: Router, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    router.status = {**ENDED, "outcome": "refused", "code": "overloaded", "calls": []}
    shown = said(tmp_path, capsys)
    assert "refused, after 1000 ms: overloaded, the service was at its limit" in shown


def test_a_request_that_is_not_known_here_says_what_may_have_become_of_it(
    router: Router, tmp_path: Path
) -> None:
    with pytest.raises(CliError, match="does not know request ffff") as raised:
        show_request("f" * 24, place=Target(state_dir=tmp_path), as_json=False)
    assert raised.value.code == ExitCode.NOT_FOUND
    assert "sent to another router, or is forgotten" in raised.value.remedy
    with pytest.raises(CliError, match="cannot choose"):
        show_request(ID, place=Target(cluster=True), as_json=False)


def test_without_a_router_here_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no model is served from this folder"):
        show_request(ID, place=Target(state_dir=tmp_path), as_json=False)


@pytest.mark.parametrize("named", ["sample", "run-1/sample", ID[:-1], ID.upper(), "tune[lr=1]"])
def test_names_of_steps_and_runs_are_no_requests(named: str) -> None:
    assert is_request(ID)
    assert not is_request(named)
