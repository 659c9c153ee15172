"""The worker agent's state: attempts and engine instances."""

import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from flowmesh_core.protocol.messages import Assignment, EngineInstanceState, FailureReport
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.events import AttemptFinished
from flowmesh_core.worker_agent.memory_reservations import Reservation
from flowmesh_core.worker_agent.progress_rate import ProgressRate
from flowmesh_core.worker_agent.transitions import AttemptPhase, InstanceState, check_transition

LOG_LINES_MAX = 50
"""Number of last lines of a host that the ends of its attempts can quote."""
SILENCE_REPORTED_FROM_S = 15.0
"""Silence of a host is reported to the control plane from this length on."""


ASLEEP = frozenset({InstanceState.FALLING_ASLEEP, InstanceState.ASLEEP})
"""States in which nothing joins an instance before it has been woken."""
_REPORTED_AS = {
    InstanceState.FALLING_ASLEEP: InstanceState.CLOSING,
    InstanceState.ASLEEP: InstanceState.CLOSING,
    InstanceState.WAKING: InstanceState.LOADING,
}
"""What a control plane reads that knows no sleep: one that is asleep is as good as gone."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt, from its assignment to its end. Times are of the agent's clock.

    Attributes:
        serial: number in the order in which attempts first needed an engine instance; 0 before.
        inline: whether all its inputs came with the assignment.
        fetch_s: seconds that fetching its inputs and its checkpoint took; ``fetched_bytes`` came
            to the worker meanwhile.
        queued_s: when it began to wait for an engine instance, or joined one.
        load_s: seconds that it waited for its engine to load.
        sent_s: when it was sent to a host; None before.
        stopped_s: when its host had ended it; None before.
        storing_s: when storing its outputs began; None before.
        resumed: whether it begins at a checkpoint.
        first_line: number of its host's first line that belongs to it.
        finished: how its host ended it; None before.
        log: what its host printed while it ran; empty until then.
    """

    assignment: Assignment
    started_s: float
    started_wall_s: float
    serial: int = 0
    phase: AttemptPhase = AttemptPhase.NEW
    instance: "Instance | None" = None
    inline: bool = False
    fetch_s: float = 0.0
    fetched_bytes: int = 0
    queued_s: float = 0.0
    load_s: float = 0.0
    sent_s: float | None = None
    stopped_s: float | None = None
    storing_s: float | None = None
    resumed: bool = False
    peak_memory_mib: int = 0
    first_line: int = 0
    finished: AttemptFinished | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    rate: ProgressRate = field(default_factory=ProgressRate)

    @property
    def id(self) -> str:
        """Its id."""
        return self.assignment.attempt_id

    @property
    def instance_key(self) -> str:
        """Equal for attempts that share an engine instance; its own id if it runs isolated."""
        return self.assignment.attempt_id if self.assignment.isolate else self.assignment.signature

    @property
    def ended(self) -> bool:
        """Whether its end has been reported; its host may still be stopping it."""
        return self.phase is AttemptPhase.ENDED

    def move(self, phase: AttemptPhase) -> None:
        """Changes the phase.

        Raises:
            InvariantError: the table does not allow it.
        """
        check_transition(self.phase, phase, f"attempt {self.id} of {self.assignment.engine}")
        self.phase = phase


@dataclass(slots=True, eq=False)
class Instance:
    """One engine host with its queue and memory.

    Attributes:
        key: by which attempts find it; see ``Attempt.instance_key``.
        isolated_for: the only attempt that may run in it; empty for any.
        capacity: attempts that it runs at once.
        running: attempts in its host, also those that have ended and are still being stopped.
        retained: attempts whose files the host keeps.
        queue: heap of ``(-priority, serial, attempt)``; attempts that have ended are skipped.
        ending: why its host ends or has to; None where it need not.
        killed: whether its host was to be killed: nothing joins it, and it is given nothing more.
        failure: why its host exited, unless it was closed.
        has_run: whether an attempt has ever run in it.
        reported: its last report; None before.
        components: identities of the models and adapters that it has or was given.
        awake: the reservation with which it runs; ``reservation`` is smaller while it is asleep.
        asleep_mib: host memory that it takes while it is asleep; 0 if it cannot sleep.
        asleep_since_s: when it last fell asleep.
        wake_s: how long its last wake took; 0 before the first.
        calls: calls in it now, by the replica of a service that pins it; while there is one, it is
            not closed.
        lines: last lines of its host; ``lines_seen`` counts all lines, ``lines_ended`` those before
            the last end of an attempt.
    """

    id: int
    key: str
    signature: Digest
    engine: str
    reservation: Reservation
    last_used_s: float
    isolated_for: str = ""
    state: InstanceState = InstanceState.STARTING
    capacity: int = 1
    load_s: float = 0.0
    silent_s: float = 0.0
    has_loaded: bool = False
    has_run: bool = False
    reported: EngineInstanceState | None = None
    components: set[Digest] = field(default_factory=set)
    awake: Reservation = field(init=False)
    asleep_mib: int = 0
    asleep_since_s: float = 0.0
    wake_s: float = 0.0
    running: dict[str, Attempt] = field(default_factory=dict)
    retained: set[str] = field(default_factory=set)
    calls: dict[str, int] = field(default_factory=dict)
    queue: list[tuple[int, int, Attempt]] = field(default_factory=list)
    ending: FailureReport | None = None
    killed: bool = False
    failure: FailureReport | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES_MAX))
    lines_seen: int = 0
    lines_ended: int = 0

    def __post_init__(self) -> None:
        """Remembers the reservation with which it runs."""
        self.awake = self.reservation

    @property
    def idle(self) -> bool:
        """Whether it is loaded, not pinned or killed, without work and without files to store."""
        busy = self.running or self.retained or self.calls or self.has_queue() or self.killed
        return self.state is InstanceState.READY and not busy

    @property
    def takes_attempts(self) -> bool:
        """Whether attempts may join its queue: it neither closes nor sleeps, nor is killed."""
        ends = self.killed or self.state is InstanceState.CLOSING
        return not ends and self.state not in ASLEEP

    @property
    def has_ended(self) -> bool:
        """Whether its host has ended."""
        return self.state is InstanceState.GONE

    def has_queue(self) -> bool:
        """Returns whether any attempt waits in its queue."""
        return any(not attempt.ended for _, _, attempt in self.queue)

    def move(self, state: InstanceState) -> None:
        """Changes the state.

        Raises:
            InvariantError: the table does not allow it.
        """
        check_transition(self.state, state, f"engine instance {self.id} of {self.engine}")
        self.state = state

    def report(self) -> EngineInstanceState:
        """Returns its state for the control plane."""
        shown = _REPORTED_AS.get(self.state, self.state)
        asleep = self.state in ASLEEP
        return EngineInstanceState(
            signature=self.signature,
            engine=self.engine,
            state=shown.value,
            capacity=self.capacity,
            memory_mib=self.reservation.memory_mib,
            load_s=self.load_s,
            silent_s=self.silent_s if self.silent_s > SILENCE_REPORTED_FROM_S else 0.0,
            asleep=True if asleep else msgspec.UNSET,
            wake_s=self.wake_s or msgspec.UNSET,
        )

    def last_lines(self, first_line: int = 0) -> str:
        """Returns the last lines of its host, from number ``first_line`` on."""
        new = min(self.lines_seen - first_line, len(self.lines))
        return "\n".join(list(self.lines)[-new:]) if new > 0 else ""


class AgentState:
    """Attempts and engine instances.

    Attributes:
        attempts: those that have not ended, by id.
        instances: those whose host is not gone, by key.
        by_id: the same by number.
        waiting: attempts that wait for memory, first come first served.
        numbers: ids of instances and standby hosts, and serials of attempts.
    """

    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.instances: dict[str, Instance] = {}
        self.by_id: dict[int, Instance] = {}
        self.waiting: list[Attempt] = []
        self.numbers: Iterator[int] = itertools.count(1)

    def in_phase(self, phase: AttemptPhase) -> list[Attempt]:
        """Returns all attempts in a phase."""
        return [attempt for attempt in self.attempts.values() if attempt.phase is phase]

    def has_instance(self, signature: Digest) -> bool:
        """Returns whether attempts of a signature can join an instance."""
        instance = self.instances.get(signature)
        return instance is not None and instance.takes_attempts
