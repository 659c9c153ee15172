"""Requests at a rate, whatever becomes of those before, from a process of their own.

``python -m tests.flowmesh_serving.flood_client JSON`` sends them over kept connections and prints
what became of them as a line of JSON. In the process of a test, whose control plane and other
clients take the same processor, latencies would be the client's own.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.flowmesh_serving.kept_connections import KeptConnections

_OK, _TOO_MANY = 200, 429
_LATE_S = 0.1


@dataclass
class Flood:
    """What became of the requests of one client.

    Attributes:
        statuses: responses by status, as text; ``failed`` for none.
        ok_s: from sending a request to its whole answer; ``refused_s`` to a refusal.
        sent_per_s: the rate at which requests were sent, as measured.
        late_p99_s: how much later than due requests were sent, at the 99th percentile.
        took_s: from the first request to the last answer.
        cpu_s: processor time of the client.
    """

    statuses: dict[str, int] = field(default_factory=dict)
    ok_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    sent_per_s: float = 0.0
    late_p99_s: float = 0.0
    took_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def sent(self) -> int:
        """How many requests were sent."""
        return sum(self.statuses.values())


def p99(times: list[float]) -> float:
    """Returns the 99th percentile; 0 of none."""
    return sorted(times)[int(0.99 * (len(times) - 1))] if times else 0.0


async def flood(
    urls: list[str], path: str, body: Any, headers: dict[str, str], rate: float, seconds: float
) -> Flood:
    """Sends requests to the routers in turns, from a process of its own."""
    given = {
        "urls": urls, "path": path, "body": json.dumps(body), "headers": headers, "rate": rate,
        "seconds": seconds,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.flowmesh_serving.flood_client", json.dumps(given)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        printed, _ = await process.communicate()
    except BaseException:
        process.kill()
        raise
    assert process.returncode == 0
    return Flood(**json.loads(printed))


@dataclass
class _Client:
    urls: list[str]
    path: str
    body: bytes
    headers: dict[str, str]
    made: Flood = field(default_factory=Flood)
    statuses: Counter[str] = field(default_factory=Counter)
    connections: KeptConnections = field(default_factory=KeptConnections)

    async def send(self, rate: float, seconds: float) -> Flood:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        began_s = due_s = sent_s = loop.time()
        late_s: list[float] = []
        count = int(rate * seconds)
        for number in range(count):
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            sent_s = loop.time()
            late_s.append(sent_s - due_s)
            # Where this process stood still, what is late is not sent all at once.
            due_s = max(due_s, sent_s - _LATE_S) + 1 / rate
            task = asyncio.create_task(self.ask(self.urls[number % len(self.urls)]))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        self.made.took_s = loop.time() - began_s
        self.made.sent_per_s = (count - 1) / (sent_s - began_s)
        self.made.late_p99_s = p99(late_s)
        self.made.statuses = dict(self.statuses)
        self.made.cpu_s = time.process_time()
        await self.connections.close()
        return self.made

    async def ask(self, url: str) -> None:
        began_s = time.perf_counter()
        try:
            status, _ = await self.connections.post(url, self.path, self.body, self.headers)
        except (OSError, EOFError):
            self.statuses["failed"] += 1
            return
        took_s = time.perf_counter() - began_s
        self.statuses[str(status)] += 1
        if status == _OK:
            self.made.ok_s.append(took_s)
        elif status == _TOO_MANY:
            self.made.refused_s.append(took_s)


if __name__ == "__main__":
    read = json.loads(sys.argv[1])
    client = _Client(read["urls"], read["path"], read["body"].encode(), read["headers"])
    done = asyncio.run(client.send(read["rate"], read["seconds"]))
    sys.stdout.write(json.dumps(asdict(done)) + "\n")
