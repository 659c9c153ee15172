"""The calls of one component of a host: those that wait, what was measured, and the largest batch.

Of a component that iterates the calls that have begun stay in its queue until they end: between two
steps they wait for the next one, beside those that have not begun.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from flowmesh_core.protocol.serving import CallTimes, ComponentCall
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.serving.queue.waiting_call import WaitingCall
from flowmesh_worker.engines.code.chain_results import ChainResult
from flowmesh_worker.engines.code.iteration_times import IterationTimes
from flowmesh_worker.ipc.passed_values import StageBytes

FIRST_S = 0.001
"""What a call, or a step, is taken to need before one was measured."""
MARGIN_S = 0.0
"""Of the time that a call has left, what is kept back."""
QUEUED_PER_BATCH = 2
_WEIGHT = 0.2
_MOST_TIMES = 2.0
"""A batch counts as at most so many times what is known of its size."""
_LIMIT_S, _LIMIT_FACTOR = 5.0, 20.0
"""A batch is ended after so many times its predicted time, and not before this many seconds."""


@dataclass(slots=True)
class CallProgress:
    """How far a call of a component that iterates is.

    Attributes:
        state: names its state in the process of the code; empty while it has none.
        began_s: when it began first; 0 before that.
        stepped_s: when its last step ended.
        steps: that it has taken since it began.
        remaining: steps that are left, as its component says; 0 where it does not.
        is_alone: whether it runs without others, since a step with them has failed.
    """

    state: str = ""
    began_s: float = 0.0
    stepped_s: float = 0.0
    steps: int = 0
    remaining: int = 0
    is_alone: bool = False

    def restart(self, *, alone: bool) -> None:
        """Forgets its steps."""
        self.state, self.steps, self.remaining = "", 0, 0
        self.is_alone |= alone


@dataclass(slots=True, eq=False)
class QueuedCall:
    """A call, or one of a chain after those before it.

    Attributes:
        rest: the calls of the chain after it.
        since_s: when the chain's budget began.
        times: of the calls before it, where the chain asks for them.
        progress: where its component iterates.
    """

    call: ComponentCall
    passed: Mapping[str, StageBytes]
    queued: WaitingCall
    until_s: float
    result: asyncio.Future[ChainResult]
    arrived_s: float
    since_s: float
    rest: Sequence[ComponentCall]
    step: int
    times: tuple[tuple[float, float], ...] = ()
    progress: CallProgress = field(default_factory=CallProgress)

    @property
    def ready_s(self) -> float:
        """When it could first have run, or taken its next step."""
        return max(self.arrived_s, self.progress.stepped_s)


@dataclass(slots=True)
class ComponentQueue:
    """One component: its queue, in order of arrival, and what was measured.

    Attributes:
        profile: of its batches, or of its steps.
        target_s: its part of the latency target, by the calls that waited last; 0 for none.
        steps: where it iterates.
    """

    batch_max: int
    profile: BatchProfile = field(default_factory=lambda: BatchProfile.of({1: FIRST_S}))
    measured: bool = False
    queue: dict[str, QueuedCall] = field(default_factory=dict)
    finish_s: float = 0.0
    times: CallTimes = field(default_factory=CallTimes)
    target_s: float = 0.0
    steps: IterationTimes | None = None

    @property
    def is_full(self) -> bool:
        """Whether it takes no further call."""
        batches = QUEUED_PER_BATCH + (self.steps is not None)
        return len(self.queue) >= batches * self.batch_max

    @property
    def queued(self) -> int:
        """How many calls have not begun."""
        return sum(not one.progress.state for one in self.queue.values())

    @property
    def cap(self) -> int:
        """The largest batch: near the knee, and within the component's part of the latency target.

        While the largest that was measured is the best, it grows to twice that. Beyond it a time
        is taken to grow in proportion: where that is too slow, it grows by one, so that it is
        measured. Steps get members one by one, so all their sizes are measured.
        """
        profile = self.profile
        knee = (profile if self.steps is None else profile.at_halves()).knee()
        is_best = knee == profile.largest
        most = max(1, min(self.batch_max, 2 * knee if is_best else knee))
        target_s = self.target_s if self.steps is None else self.steps.step_target_s(self.target_s)
        if not target_s:
            return most
        within = profile.largest_within(target_s, most)
        grows = within == profile.largest < most and profile.at(within) <= target_s
        return within + grows

    @property
    def call_profile(self) -> BatchProfile | None:
        """The seconds of a batch, or of whole calls where it iterates; None before one is known."""
        return self.profile if self.steps is None else self.steps.of_calls(self.profile)

    def limit_s(self, members: Sequence[QueuedCall]) -> float:
        """Returns how long a batch may take; any time before one was measured."""
        predicted_s = self.profile.at(len(members)) if self.measured else math.inf
        if self.steps is not None:
            begins = sum(not one.progress.steps for one in members)
            predicted_s = self.steps.predicted_s(predicted_s, begins, len(members))
        return max(_LIMIT_S, _LIMIT_FACTOR * predicted_s)

    def record(self, size: int, seconds: float) -> None:
        """Records the time of a batch."""
        weight = _WEIGHT if self.measured and size in self.profile.sizes else 1.0
        if not self.measured:  # a call alone may take as long as the whole batch
            self.profile = BatchProfile.of({1: max(seconds, 1e-6)})
        elif size in self.profile.sizes:  # a single slow one says little
            seconds = min(seconds, _MOST_TIMES * self.profile.at(size))
        self.profile = self.profile.updated(size, max(seconds, 1e-6), weight)
        self.measured = True

    def waiting(self) -> list[WaitingCall]:
        """Returns what its queue is formed into batches by."""
        steps = self.steps
        if steps is None:
            return [one.queued for one in self.queue.values()]
        return [
            msgspec.structs.replace(
                one.queued,
                visits=steps.steps_left(one.progress.remaining, one.call.timing),
                rest_s=steps.rest_s(one.call.timing),
            )
            for one in self.queue.values()
        ]

    def to_measure(self, late: Sequence[WaitingCall]) -> WaitingCall | None:
        """Returns a call that was late as it came; None where all have become so since.

        By what was measured no call could be in time, as after one slow batch. With all of them
        refused nothing would be measured again, and all refused for ever.
        """
        alone_s = self.profile.at(1)
        for call in reversed(late):
            one = self.queue[call.id]
            has_begun = bool(one.progress.state)
            if not has_begun and call.seconds_a_visit(one.arrived_s, MARGIN_S) < alone_s:
                return call
        return None

    def members(self, chosen: Iterable[WaitingCall]) -> list[QueuedCall]:
        """Returns the calls of a batch; one that has to run alone is a batch by itself."""
        found = [self.queue[call.id] for call in chosen]
        if found and found[0].progress.is_alone:
            return found[:1]
        return [one for one in found if not one.progress.is_alone]
