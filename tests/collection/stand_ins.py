"""Stand-ins of the servers that the collection's workflows ask, on 127.0.0.1: a chat API, a Qdrant
and the user's own.
"""

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "key-of-the-collection"


def chat_answer(system: str, question: str) -> str:
    """Returns what the chat API answers."""
    return f"{system or 'You'} asked: {question}"


class StandIns(ThreadingHTTPServer):
    """Answers as the servers do.

    Attributes:
        points: of the Qdrant, by id.
        results: what the user's server got, in order.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.points: dict[int, dict[str, Any]] = {}
        self.results: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, method: str, path: str, body: Any) -> Any:
        match method, path:
            case "POST", "/v1/chat/completions":
                said = {m["role"]: m["content"] for m in body["messages"]}
                text = chat_answer(said.get("system", ""), said["user"])
                message = {"role": "assistant", "content": text}
                return {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
            case "PUT", "/collections/notes/points":
                self.points |= {point["id"]: point for point in body["points"]}
                return {"status": "ok"}
            case "POST", "/collections/notes/points/search":
                found = [
                    {"id": p["id"], "score": cosine(p["vector"], body["vector"]), **p}
                    for p in self.points.values()
                ]
                found.sort(key=lambda p: (-p["score"], p["id"]))
                return {"status": "ok", "result": found[: body["limit"]]}
            case "POST", "/results":
                self.results.append(body)
                return {"stored": body["id"]}
        return None


def cosine(a: list[float], b: list[float]) -> float:
    """Returns the cosine of the angle between two vectors."""
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


class _Handler(BaseHTTPRequestHandler):
    server: StandIns

    def _answer(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        allowed = self.headers["Authorization"] == f"Bearer {KEY}" or "/v1/" not in self.path
        found = self.server.answer(self.command, self.path, body) if allowed else None
        content = json.dumps(found).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_PUT = _answer  # noqa: N815 - the names that the base class calls

    def log_message(self, *args: object) -> None:
        del args


@contextmanager
def stand_ins() -> Iterator[StandIns]:
    """Serves during a block."""
    with StandIns() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
