"""How often a router asks about tokens that it does not know, of each peer and in all.

Each question costs the control plane a review by the API server, and any text can be sent as a
token. A peer that sends many leaves most of the questions to the others.
"""

from collections import OrderedDict
from collections.abc import Callable

from flowmesh_serving.rate_limiter import RateLimiter

PER_S, BURST = 20.0, 40.0
"""Of one router."""
PEER_PER_S, PEER_BURST = 4.0, 16.0
"""Of one address, at one router."""
PEERS_MAX = 1024


class ReviewRate:
    """Counts questions; the address that has asked least recently is forgotten first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Starts with nothing asked.

        Args:
            clock: seconds that never go back.
        """
        self._clock = clock
        self._all = RateLimiter(BURST, clock())
        self._peers: OrderedDict[str, RateLimiter] = OrderedDict()

    def take(self, peer: str) -> bool:
        """Returns whether one more question of a peer may be asked, and counts it if so."""
        now_s = self._clock()
        bucket = self._peers.get(peer)
        if bucket is None:
            bucket = self._peers[peer] = RateLimiter(PEER_BURST, now_s)
            if len(self._peers) > PEERS_MAX:
                self._peers.popitem(last=False)
        self._peers.move_to_end(peer)
        # The peer's own is asked first: what it has too much of costs the others nothing.
        return bucket.take(now_s, PEER_PER_S, PEER_BURST) and self._all.take(now_s, PER_S, BURST)
