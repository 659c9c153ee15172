"""``fmesh load`` and ``call``: what they say of failures, and of staged services."""

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.main import app


class Router(BaseHTTPRequestHandler):
    """Returns the request of a service with stages, and refuses chats as a router that is full."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        staged = self.path == "/v1/services/default/ask-docs:invoke"
        loading = b'"model": "loading"' in body
        if not staged:
            body = json.dumps({"error": {"message": "the queue of 'm' is full"}}).encode()
        self.send_response(503 if loading else 200 if staged else 429)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class BreakingRouter(BaseHTTPRequestHandler):
    """Begins an answer and ends it as ``ending`` says; refuses each other request."""

    ending = b""
    refuses = itertools.repeat(False)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if next(self.refuses):
            body = json.dumps({"error": {"message": "the queue of 'm' is full"}}).encode()
            self.send_response(429)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'data: {"choices": [{"delta": {"content": ":key: The capital"}}]}\n\n')
        self.wfile.write(self.ending)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


@pytest.fixture
def router() -> Iterator[str]:
    with serving(Router) as url:
        yield url


def write_endpoint(folder: Path, url: str) -> None:
    (folder / "serving").mkdir()
    invoke = {"ask-docs": f"{url}/services/default/ask-docs:invoke"}
    tokens = dict.fromkeys(("m", "loading", "ask-docs"), "t")
    document = {"url": url, "tokens": tokens, "invoke": invoke}
    (folder / "serving" / "endpoint.json").write_text(json.dumps(document))


@pytest.mark.parametrize("as_json", [False, True])
def test_a_load_of_which_nothing_succeeds_fails_with_the_first_error(
    tmp_path: Path, router: str, as_json: bool
) -> None:
    write_endpoint(tmp_path, router)
    words = ["load", "m", "--rate", "100", "--for", "0.03s", "--state-dir", str(tmp_path)]
    done = CliRunner().invoke(app, [*words, *(["--json"] if as_json else [])])
    assert done.exit_code == ExitCode.REFUSED
    assert "no request succeeded; the first: HTTP 429: the queue of 'm' is full" in done.stderr
    if as_json:
        assert json.loads(done.stdout)["http_429"] == 3
    else:
        assert "http_429       3" in done.stdout
        assert "refused        3" in done.stdout
        assert "latency_ms     -" in done.stdout.splitlines()
        assert "ttft_ms" not in done.stdout, "nothing was streamed"


def test_a_load_that_reaches_no_router_fails(tmp_path: Path) -> None:
    write_endpoint(tmp_path, "http://127.0.0.1:1/v1")
    words = ["load", "m", "--rate", "100", "--for", "0.01s", "--state-dir", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == ExitCode.NO_FABRIC
    assert "no request succeeded; the first: " in done.stderr
    assert "refused        0" in done.stdout


def test_a_service_with_stages_gets_the_text_as_its_request(tmp_path: Path, router: str) -> None:
    write_endpoint(tmp_path, router)
    given, options = '{"question": "Why?"}', ["--state-dir", str(tmp_path)]
    called = CliRunner().invoke(app, ["call", "ask-docs", given, *options])
    assert json.loads(called.stdout) == json.loads(given)
    words = ["load", "ask-docs", "--rate", "100", "--for", "0.03s", "--text", given, "--json"]
    report = json.loads(CliRunner().invoke(app, [*words, *options]).stdout)
    assert (report["sent"], report["ok"], report["ttft_ms"]) == (3, 3, {})
    assert report["refused"] == 0
    assert "refused        0" in CliRunner().invoke(app, [*words[:-1], *options]).stdout


@pytest.mark.parametrize("command", [["load", "ask-docs"], ["call", "ask-docs", "[1]"]])
def test_a_service_with_stages_takes_objects_alone(tmp_path: Path, command: list[str]) -> None:
    write_endpoint(tmp_path, "http://127.0.0.1:1/v1")
    done = CliRunner().invoke(app, [*command, "--state-dir", str(tmp_path)])
    assert done.exit_code == ExitCode.USAGE
    assert "'ask-docs' is a service with stages, which takes a JSON object: got " in done.stderr
    assert "the line with curl that `fmesh serve` has printed names them" in done.stderr


def ask(folder: Path, ending: bytes) -> Result:
    """Asks a model whose answer begins, and then ends so."""
    handler = type("Handler", (BreakingRouter,), {"ending": ending})
    with serving(handler) as url:
        write_endpoint(folder, url)
        return CliRunner().invoke(app, ["call", "m", "What?", "--state-dir", str(folder)])


def test_an_error_within_an_answer_is_on_a_line_of_its_own(tmp_path: Path) -> None:
    done = ask(tmp_path, b'data: {"error": {"message": "the engine ended"}}\n\n')
    assert done.exit_code == ExitCode.REFUSED
    assert done.output == ":key: The capital\nerror: the engine ended\n"


def test_an_answer_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    done = ask(tmp_path, b"")
    assert done.exit_code == ExitCode.NO_FABRIC
    assert done.output.startswith(":key: The capital\nerror: the answer was cut short\nremedy: ")


def test_a_call_that_is_interrupted_ends_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Console.print

    def printed(self: Console, *words: str, **options: Any) -> None:
        text(self, *words, **options)
        if words == (":key: The capital",):
            raise KeyboardInterrupt

    monkeypatch.setattr(Console, "print", printed)
    done = ask(tmp_path, b"data: [DONE]\n\n")
    assert done.exit_code == ExitCode.INTERRUPTED
    assert done.output == ":key: The capital\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_load_of_which_some_is_refused_says_why(tmp_path: Path, as_json: bool) -> None:
    answer = {"ending": b"data: [DONE]\n\n", "refuses": itertools.cycle([False, True])}
    words = ["load", "m", "--rate", "100", "--for", "0.04s", "--state-dir", str(tmp_path)]
    with serving(type("Handler", (BreakingRouter,), answer)) as url:
        write_endpoint(tmp_path, url)
        done = CliRunner().invoke(app, [*words, *(["--json"] if as_json else [])])
    assert done.exit_code == ExitCode.OK
    if as_json:
        found = json.loads(done.stdout)
        assert (found["ok"], found["http_429"], found["refused"]) == (2, 2, 2)
        assert found["errors"] == {"http_429": "HTTP 429: the queue of 'm' is full"}
    else:
        assert done.stderr == "http_429 (2 of 4), the first: HTTP 429: the queue of 'm' is full\n"


def test_a_call_without_a_replica_says_where_to_look(tmp_path: Path, router: str) -> None:
    write_endpoint(tmp_path, router)
    done = CliRunner().invoke(app, ["call", "loading", "Hi", "--state-dir", str(tmp_path)])
    assert done.exit_code == ExitCode.REFUSED
    assert "remedy: `fmesh services list` shows what it waits for" in done.stderr


def test_a_model_that_is_not_served_is_to_be_named_in_the_command_that_serves(
    tmp_path: Path, router: str
) -> None:
    write_endpoint(tmp_path, router)
    done = CliRunner().invoke(app, ["call", "n", "Hi", "--state-dir", str(tmp_path)])
    assert done.exit_code == ExitCode.NOT_FOUND
    assert "call one of these, or restart `fmesh serve` with 'n' too" in done.stderr


class ChunkedRouter(BreakingRouter):
    """As a router, whose streams are chunked: begins one and is gone."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        data = b'data: {"choices": [{"delta": {"content": ":key: The capital"}}]}\n\n'
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) + self.ending)
        self.close_connection = True


@pytest.mark.parametrize("ending", [b"", b"ff\r\ndata: {", b"no length\r\n"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_answer_whose_router_is_gone_is_an_error(
    tmp_path: Path, ending: bytes, options: list[str]
) -> None:
    with serving(type("Handler", (ChunkedRouter,), {"ending": ending})) as url:
        write_endpoint(tmp_path, url)
        words = ["call", "m", "What?", *options, "--state-dir", str(tmp_path)]
        done = CliRunner().invoke(app, words)
    assert done.exit_code == ExitCode.NO_FABRIC
    assert "error: the answer was cut short\nremedy: check that `fmesh serve`" in done.stderr
    if options:
        assert json.loads(done.stdout)["error"]["kind"] == "no-fabric"


class OtherServer(BaseHTTPRequestHandler):
    """What has the port of a router that has ended."""

    body, status = b"", 200

    def do_POST(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": "no"}', b"null", b"\xff"])
@pytest.mark.parametrize("command", [["call", "m", "Hi", "--json"], ["call", "ask-docs", "{}"]])
def test_another_server_on_the_port_of_a_router_is_named_as_such(
    tmp_path: Path, body: bytes, command: list[str]
) -> None:
    with serving(type("Handler", (OtherServer,), {"body": body, "status": 404})) as url:
        write_endpoint(tmp_path, url)
        done = CliRunner().invoke(app, [*command, "--state-dir", str(tmp_path)])
    assert done.exit_code == ExitCode.NO_FABRIC
    assert "error: the router's port answers, but not as a router does\n" in done.stderr


@pytest.mark.parametrize("rate", ["inf", "1e308"])
def test_a_rate_that_none_is_is_refused(tmp_path: Path, rate: str) -> None:
    write_endpoint(tmp_path, "http://127.0.0.1:1/v1")
    words = ["load", "m", "--rate", rate, "--for", "100h", "--state-dir", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == ExitCode.USAGE
    assert "--rate: " in done.stderr
    assert "is not a rate" in done.stderr


def test_answers_that_do_not_come_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    class SilentRouter(BreakingRouter):
        def do_POST(self) -> None:
            released.wait(30)

    monkeypatch.setattr("flowmesh_cli.verbs.load._TIMEOUT_S", 0.2)
    words = ["load", "m", "--rate", "100", "--for", "0.01s", "--json", "--state-dir", str(tmp_path)]
    with serving(SilentRouter) as url:
        write_endpoint(tmp_path, url)
        done = CliRunner().invoke(app, words)
        released.set()
    found = json.loads(done.stdout)
    assert found["timed_out"] == found["sent"] == 1
    assert found["errors"] == {"timed_out": "no whole answer within 0.2 s"}
    assert done.exit_code == ExitCode.NO_FABRIC
