"""Values of peers that come before the router has sent their request, for two seconds."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from flowmesh_core.protocol.serving import PeerValue
from flowmesh_worker.ipc.passed_values import StageBytes, size_of
from flowmesh_worker.serving.peer_receiver import Peer

EARLY_S = 2.0
EARLY_MAX = 256
EARLY_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True, eq=False)
class EarlyValue:
    """A value that waits; the arguments of ``PeerReceiver.add_peer_value``."""

    peer: Peer
    value: PeerValue
    data: StageBytes
    refuse: Callable[[], None]


class EarlyValues:
    """The values of one hub that wait.

    Attributes:
        size: their bytes.
    """

    def __init__(self) -> None:
        self.size = 0
        self._waiting: dict[EarlyValue, asyncio.TimerHandle] = {}

    def add(self, early: EarlyValue) -> None:
        """Keeps a value until it is old.

        Where there are too many, or too many bytes, the newest of the worker that has most of them
        is refused: its own values do not keep out those of others.
        """
        self.size += size_of(early.data)
        timer = asyncio.get_running_loop().call_later(EARLY_S, self._expire, early)
        self._waiting[early] = timer
        while len(self._waiting) > EARLY_MAX:
            self._expire(self._newest_of_most(lambda _: 1))
        while self.size > EARLY_BYTES_MAX:
            self._expire(self._newest_of_most(lambda each: size_of(each.data)))

    def _newest_of_most(self, weight: Callable[[EarlyValue], int]) -> EarlyValue:
        weights: Counter[str] = Counter()
        for each in self._waiting:
            weights[each.peer.worker] += weight(each)
        worker, _ = max(weights.items(), key=lambda item: item[1])
        return next(each for each in reversed(self._waiting) if each.peer.worker == worker)

    def take(self, request_id: str) -> list[EarlyValue]:
        """Returns the values of a request, which wait no more."""
        found = [early for early in self._waiting if early.value.request_id == request_id]
        for early in found:
            self._remove(early)
        return found

    def close(self) -> None:
        """Drops all; their senders see the end of their links."""
        for early in list(self._waiting):
            self._remove(early)

    def _expire(self, early: EarlyValue) -> None:
        self._remove(early)
        early.refuse()

    def _remove(self, early: EarlyValue) -> None:
        self._waiting.pop(early).cancel()
        self.size -= size_of(early.data)
