"""A request that a quota refuses is sent once more after the pause that the answer names."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from flowmesh_api.v1.quotas import QuotaUsage
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

REFUSAL = (
    b'{"error":{"message":"namespace team-b asks for more than 30 plans in a minute",'
    b'"where":"quota","remedy":"try again in 2 s","problems":[],"code":"quota"}}'
)


class Limited(HTTPServer):
    """Refuses so many requests, each with the pause; then serves."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.refuses, self.pause_s, self.asked = 1, "2", 0


class Answering(BaseHTTPRequestHandler):
    server: Limited

    def do_GET(self) -> None:
        self.server.asked += 1
        refused = self.server.asked <= self.server.refuses
        body = REFUSAL if refused else b'{"namespace":"team-b"}'
        self.send_response(429 if refused else 200)
        if refused:
            self.send_header("Retry-After", self.server.pause_s)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Writes nothing."""


@pytest.fixture
def server() -> Iterator[Limited]:
    with Limited() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = list[float]()
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def ask(server: Limited) -> QuotaUsage:
    client = ApiClient.at(f"http://127.0.0.1:{server.server_port}", "token")
    try:
        return client.get("/v1/quota", QuotaUsage)
    finally:
        client.close()


def test_a_short_pause_is_waited_for_once(server: Limited, pauses: list[float]) -> None:
    assert ask(server) == QuotaUsage("team-b")
    assert pauses == [2.0]


def test_a_second_refusal_is_shown(server: Limited, pauses: list[float]) -> None:
    server.refuses = 2
    with pytest.raises(CliError, match="more than 30 plans in a minute") as refused:
        ask(server)
    assert refused.value.code == ExitCode.REFUSED
    assert refused.value.remedy == "try again in 2 s"
    assert pauses == [2.0]
    assert server.asked == 2


def test_a_long_pause_is_not_waited_for(server: Limited, pauses: list[float]) -> None:
    server.pause_s = "6"
    with pytest.raises(CliError, match="more than 30 plans"):
        ask(server)
    assert pauses == []
    assert server.asked == 1
