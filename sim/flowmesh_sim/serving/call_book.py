"""The clients of simulated services: what each asked, and that it got exactly one answer."""

from collections import Counter
from dataclasses import dataclass, field

from flowmesh_sim.kernel.violation import violated

BROKEN = "router-lost"
CANCELLED = "cancelled"


@dataclass(slots=True)
class CallBook:
    """All calls, and how they ended.

    Attributes:
        outcomes: number of calls by outcome.
        latencies_s: of calls that were answered in full.
        open: calls without an end: when each was sent, by id.
        ended: ids of all others.
        computed: how often an engine computed a call to its end, by id.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    open: dict[str, float] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    computed: Counter[str] = field(default_factory=Counter)

    def send(self, call_id: str, now_s: float) -> None:
        """Records that a client asks."""
        self.open[call_id] = now_s

    def end(self, call_id: str, outcome: str, now_s: float) -> None:
        """Records a call's answer.

        Raises:
            InvariantError: it has one already, or was never sent, or nothing computed it.
        """
        if call_id not in self.open:
            again = "again" if call_id in self.ended else "though it was never sent"
            violated("calls", f"call {call_id} is answered {again}: {outcome}")
        if outcome == "ok" and not self.computed[call_id]:
            violated("calls", f"call {call_id} is answered and was never computed")
        sent_s = self.open.pop(call_id)
        self.ended.add(call_id)
        self.outcomes[outcome] += 1
        if outcome == "ok":
            self.latencies_s.append(now_s - sent_s)

    def check_ended(self) -> None:
        """Checks that every call has an answer.

        Raises:
            InvariantError: some have none.
        """
        if self.open:
            violated("calls", f"{len(self.open)} calls have no answer, such as {min(self.open)}")
