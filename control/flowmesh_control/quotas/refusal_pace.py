"""Delays the refusals of a client that sends more than it may.

A refusal costs the control plane nearly as much as a small answer. A client that is refused at once
asks again at once, so a flood would take most of the event loop, and other tenants would wait. A
connection has one request at a time: while its refusal waits it sends no other. Reading from the
connection is not paused, since a proxy may send other users' requests on it next.
"""

from flowmesh_control.loop.clock import Clock

REFUSALS_PER_S = 50.0
"""How many refusals a client gets a second, and how many at once before that."""
DELAY_MAX_S = 10.0
_CLIENTS_MAX = 10_000


class RefusalPace:
    """When each client gets its next refusal."""

    def __init__(self, clock: Clock) -> None:
        """Starts without refusals.

        Args:
            clock: seconds that never go back.
        """
        self._clock = clock
        self._next_s: dict[str, float] = {}

    def delay_s(self, client: str) -> float:
        """Counts a refusal of a client; returns the seconds to wait before it is sent."""
        now_s = self._clock()
        if len(self._next_s) >= _CLIENTS_MAX:
            self._next_s = {c: s for c, s in self._next_s.items() if s > now_s}
        first_s = now_s - 1.0 + 1.0 / REFUSALS_PER_S
        at_s = min(max(self._next_s.get(client, 0.0), first_s), now_s + DELAY_MAX_S)
        self._next_s[client] = at_s + 1.0 / REFUSALS_PER_S
        return max(0.0, at_s - now_s)
