"""A client of a service, as a program for a pod: prints a JSON line at its end.

``load`` sends requests one after the other and counts the answers, ``invoke`` requests to the
stages of a service; ``hub`` connects to the port of routers for hubs without a link certificate,
and prints the refusal.
"""

import json
import os
import socket
import ssl
import struct
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import msgspec

TRUST = ssl.create_default_context(cafile="/client/ca.crt")
NAMESPACE = os.environ["FABRIC"]
LAST = 10


def ask(text: str) -> bool:
    """Sends a request over a new connection; returns whether the answer is right."""
    body = {"model": os.environ["MODEL"], "messages": [{"role": "user", "content": text}]}
    answer = posted("/v1/chat/completions", body)
    return bool(answer["choices"][0]["message"]["content"] == text)


def invoke(text: str) -> bool:
    """Sends a request to stages that double a text and repeat it; returns whether they did."""
    answer = posted(f"/v1/services/{os.environ['SERVICE']}:invoke", {"text": text})
    return bool(answer == {"said": f"{text} {text}"})


def posted(path: str, body: Any) -> Any:
    """Sends a document to the routers; returns their answer."""
    asked = urllib.request.Request(
        f"https://flowmesh-router.{NAMESPACE}.svc:8480{path}",
        json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['TOKEN']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(asked, timeout=20, context=TRUST) as answer:
        return json.loads(answer.read())


def load(send: Callable[[str], bool], requests: int, every_s: float) -> dict[str, object]:
    """Sends requests; returns how many were answered, wrong or failed."""
    outcomes: list[str] = []
    codes: dict[str, int] = {}
    wrong = 0
    for number in range(requests):
        try:
            is_right = send(f"request {number}")
            wrong += not is_right
            outcomes.append("ok" if is_right else "wrong")
        except urllib.error.HTTPError as error:
            outcomes.append(str(error.code))
        except OSError as error:
            outcomes.append(type(error).__name__)
        if outcomes[-1] != "ok":
            codes[outcomes[-1]] = codes.get(outcomes[-1], 0) + 1
        answered = outcomes.count("ok")
        if outcomes[-1] == "ok" and answered % 20 == 0:
            sys.stdout.write(f"answered {answered}\n")
            sys.stdout.flush()
        time.sleep(every_s)
    answered = outcomes.count("ok")
    failed = requests - answered - wrong
    counts = {"answered": answered, "wrong": wrong, "failed": failed}
    return {**counts, "codes": codes, "last": outcomes[-LAST:]}


def connected(host: str, port: int, within_s: float = 30.0) -> socket.socket:
    """Connects, once network policies allow it; they apply some time after they are written."""
    end = time.monotonic() + within_s
    while True:
        try:
            return socket.create_connection((host, port), 20)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def hub() -> dict[str, object]:
    """Says hello as a hub without a certificate; returns what ends the connection."""
    host = f"flowmesh-router-hubs.{NAMESPACE}.svc"
    load = ["r", "team/ask", ["/v1/chat/completions"], 4, 0, 0]
    hello = msgspec.msgpack.encode([["hub-hello", 1, "worker", "i", [load]]])
    with (
        connected(host, 8481) as plain,
        TRUST.wrap_socket(plain, server_hostname=host) as connection,
    ):
        try:
            connection.sendall(struct.pack(">I", len(hello)) + hello)
            return {"refused": repr(connection.recv(4096))}
        except OSError as error:
            return {"refused": str(error)}


if __name__ == "__main__":
    if sys.argv[1] == "hub":
        found = hub()
    else:
        send = invoke if sys.argv[1] == "invoke" else ask
        found = load(send, int(sys.argv[2]), float(sys.argv[3]))
    sys.stdout.write(json.dumps(found) + "\n")
