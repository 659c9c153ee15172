"""A client of a service, as a program for a pod: prints a JSON line at its end.

``load`` sends requests one after the other and counts the answers; ``hub`` connects to the port of
routers for hubs without a link certificate, and prints the refusal.
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

import msgspec

TRUST = ssl.create_default_context(cafile="/client/ca.crt")
NAMESPACE = os.environ["FABRIC"]
LAST = 10


def ask(text: str) -> str:
    """Sends a request over a new connection; returns the answer."""
    body = {"model": os.environ["MODEL"], "messages": [{"role": "user", "content": text}]}
    asked = urllib.request.Request(
        f"https://flowmesh-router.{NAMESPACE}.svc:8480/v1/chat/completions",
        json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['TOKEN']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(asked, timeout=20, context=TRUST) as answer:
        return str(json.loads(answer.read())["choices"][0]["message"]["content"])


def load(requests: int, every_s: float) -> dict[str, object]:
    """Sends requests; returns how many were answered, wrong or failed."""
    outcomes: list[str] = []
    codes: dict[str, int] = {}
    wrong = 0
    for number in range(requests):
        text = f"request {number}"
        try:
            is_right = ask(text) == text
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


def hub() -> dict[str, object]:
    """Says hello as a hub without a certificate; returns the router's answer."""
    host = f"flowmesh-router-hubs.{NAMESPACE}.svc"
    load = ["r", "team/ask", ["/v1/chat/completions"], 4, 0, 0]
    hello = msgspec.msgpack.encode([["hub-hello", 1, "worker", "i", [load]]])
    with (
        socket.create_connection((host, 8481), 20) as plain,
        TRUST.wrap_socket(plain, server_hostname=host) as connection,
    ):
        connection.sendall(struct.pack(">I", len(hello)) + hello)
        data = b""
        while more := connection.recv(4096):
            data += more
    return {"refused": repr(msgspec.msgpack.decode(data[4:]))}


if __name__ == "__main__":
    found = hub() if sys.argv[1] == "hub" else load(int(sys.argv[2]), float(sys.argv[3]))
    sys.stdout.write(json.dumps(found) + "\n")
