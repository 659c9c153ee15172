"""Loads a contestant of a serving benchmark over HTTP and sums up what its requests took.

The requests come from ``http_load.py``, a process of its own and the same for all contestants.
"""

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from peer import Peer
from processor import trees_s

_SCRIPT = "http_load.py"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A running server.

    Attributes:
        name: in tables.
        url: of the requests.
        body: of a request; ``@NUMBER@`` in it becomes the request's number.
        headers: of a request.
        processes: the roots of its processes, by what they are.
        status: of its responses.
    """

    name: str
    url: str
    body: str
    processes: Mapping[str, int]
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """One measurement.

    Attributes:
        seconds: from the first request to the last answer.
        latencies_s: of each request.
        first_s: until the first byte of each answer's body.
        tokens: generated, as the answers report them.
        events: server-sent events.
        cpu_s: processor time of the contestant's processes and their children.
        load_cpu_s: of the load generator.
    """

    seconds: float
    latencies_s: Sequence[float]
    first_s: Sequence[float]
    tokens: int
    events: int
    cpu_s: Mapping[str, float]
    load_cpu_s: float

    @property
    def requests(self) -> int:
        """Answered requests."""
        return len(self.latencies_s)

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def token_rate(self) -> float:
        """Generated tokens per second."""
        return self.tokens / self.seconds

    @property
    def cpu_us(self) -> float:
        """Processor time a request of all of the contestant's processes, in microseconds."""
        return sum(self.cpu_s.values()) / self.requests * 1e6

    @property
    def ttft_ms(self) -> float:
        """The median time until the first byte of an answer's body."""
        return statistics.median(self.first_s) * 1000

    def latency_ms(self, percent: int) -> float:
        """Returns a percentile of the latencies."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000


class LoadGenerator:
    """The process that sends the requests."""

    def __init__(self) -> None:
        self._peer = Peer(sys.executable, _SCRIPT)
        self._number = 0

    async def run(self, target: Contestant, concurrent: int, **more: Any) -> Outcome:
        """Loads a contestant.

        Args:
            target: it is ready.
            concurrent: connections, each with one request at a time.
            more: ``seconds`` or ``requests``; ``first_number``, of the first request.

        Raises:
            RuntimeError: a request failed, or had another status than expected.
        """
        address = urlsplit(target.url)
        before = {name: trees_s([pid]) for name, pid in target.processes.items()}
        found = await self._peer.ask(
            "load",
            host=address.hostname,
            port=address.port,
            path=address.path,
            body=target.body,
            headers=dict(target.headers),
            status=target.status,
            concurrent=concurrent,
            **more,
        )
        after = {name: trees_s([pid]) for name, pid in target.processes.items()}
        if found["failures"] or not found["latencies_s"]:
            raise RuntimeError(f"{target.name} failed at {concurrent}: {found['failures']}")
        return Outcome(
            seconds=found["seconds"],
            latencies_s=found["latencies_s"],
            first_s=found["first_s"],
            tokens=found["tokens"],
            events=found["events"],
            cpu_s={name: after[name] - before[name] for name in before},
            load_cpu_s=found["own_cpu_s"],
        )

    def stop(self) -> None:
        """Ends the process."""
        self._peer.stop()
