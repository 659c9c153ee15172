"""Differences to the old agent after which everything else happens at other times.

Each is shown by undoing it: with all of them undone, the agent does what the old one did, but for
the differences of ``changed_effects``. That compares much more than a list of expected effects.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.golden.agent.virtual.hosts import LACKING

from flowmesh_core.protocol.messages import Assignment, FailureReport, PrewarmSpec
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent.attempts import TIMEOUT_TIMER
from flowmesh_core.worker_agent.instances import Step
from flowmesh_core.worker_agent.instructions import ClearTimer
from flowmesh_core.worker_agent.machine import WorkerAgent
from flowmesh_core.worker_agent.prewarm import PrewarmEntry
from flowmesh_core.worker_agent.state import Attempt, Instance
from flowmesh_core.worker_agent.transitions import AttemptPhase, PrewarmState

Wanted = Assignment | PrewarmSpec


@dataclass(frozen=True)
class Undone:
    """A difference.

    Attributes:
        why: what differs, and why that is wanted.
        scenario: one that shows it.
        undo: has an agent do as the old one did.
    """

    why: str
    scenario: str
    undo: Callable[[WorkerAgent], None]


def _replace(owner: object, name: str, method: Callable[..., Any]) -> None:
    vars(owner)[name] = method


def _one_standby_at_a_time(agent: WorkerAgent) -> None:
    standby = agent.standby

    def advance(*, busy: bool) -> None:
        if not standby._allowed or busy or standby._imports():
            return
        for name in reversed(standby._requested):
            if name not in standby.hosts and name not in standby._failed:
                standby._start(standby._requested[name])
                return

    _replace(standby, "advance", advance)


def _standby_first(agent: WorkerAgent) -> None:
    standby, advance = agent.standby, agent.standby.advance

    def starting(method: Callable[[Any], None]) -> Callable[[Any], None]:
        def call_and_start(about: Any) -> None:
            method(about)
            advance(busy=agent.instances.busy)

        return call_and_start

    def nothing(*, busy: bool) -> None:
        pass

    _replace(standby, "advance", nothing)
    for name in ("request", "ready", "exited"):
        _replace(standby, name, starting(getattr(standby, name)))
    _replace(agent.instances, "changed", starting(agent.instances.changed))


def _standby_killed_first(agent: WorkerAgent) -> None:
    start, memory, standby = agent.instances._start, agent.memory, agent.standby

    def release_and_start(key: str, wanted: Wanted) -> Instance | None:
        needed = (wanted.memory_mib, agent.instances._devices(wanted))
        if not memory.suffices(*needed, []) and memory.suffices(*needed, standby.reservations):
            standby.release_memory()
        return start(key, wanted)

    _replace(agent.instances, "_start", release_and_start)


def _close_any_idle(agent: WorkerAgent) -> None:
    instances = agent.instances

    def free_memory(attempt: Attempt) -> None:
        idle = instances._closable()
        if idle:
            listed = instances.prewarmed
            instances._close(min(idle, key=lambda i: (i.signature in listed, i.last_used_s)))

    def needed(idle: list[Step], wanted: Wanted) -> list[Step]:
        freed = [*agent.standby.reservations, *(i.reservation for i, _ in idle)]
        devices = instances._devices(wanted)
        return idle if agent.memory.suffices(wanted.memory_mib, devices, freed) else []

    _replace(instances, "_free_memory", free_memory)
    _replace(instances, "_needed", needed)


def _report_always(agent: WorkerAgent) -> None:
    stop, storing = agent.attempts.stop, [False]

    def report(instance: Instance) -> None:
        if not (storing[0] and instance.running):
            agent.reports.instances_changed()
            agent.reports.components_changed()

    def stop_and_know(attempt_id: str, failure: FailureReport) -> None:
        attempt = agent.state.attempts.get(attempt_id)
        instance = attempt.instance if attempt is not None else None
        storing[0] = instance is not None and attempt_id in instance.retained
        stop(attempt_id, failure)
        storing[0] = False

    _replace(agent.instances, "_report", report)
    _replace(agent.attempts, "stop", stop_and_know)


def _time_out_while_storing(agent: WorkerAgent) -> None:
    def stopped(attempt: Attempt) -> None:
        if attempt.sent_s is not None and attempt.stopped_s is None:
            attempt.stopped_s = agent._out.now_s
        succeeded = attempt.finished is not None and attempt.finished.failure is None
        if not succeeded or attempt.id not in agent.state.attempts:
            agent._out.add(ClearTimer((TIMEOUT_TIMER, attempt.id)))

    _replace(agent.attempts, "_stopped", stopped)


def _end_lacking_at_once(agent: WorkerAgent) -> None:
    fail = agent.attempts._fail

    def end_or_fail(attempt: Attempt, failure: FailureReport) -> None:
        if failure == LACKING:
            agent.attempts._end(attempt, failure)
        else:
            fail(attempt, failure)

    _replace(agent.attempts, "_fail", end_or_fail)


def _see_no_fetched_components(agent: WorkerAgent) -> None:
    advance, changed = agent.prewarmer.advance, agent.prewarmer.components_changed
    just_changed = [False]

    def components_changed(local: frozenset[Digest]) -> None:
        changed(local)
        just_changed[0] = True

    def advance_later(*, may_start: bool) -> None:
        if not just_changed[0]:
            advance(may_start=may_start)
        just_changed[0] = False

    _replace(agent.prewarmer, "components_changed", components_changed)
    _replace(agent.prewarmer, "advance", advance_later)


def _await_desired(agent: WorkerAgent) -> None:
    follow = agent._handlers[e.DesiredReceived]

    def follow_and_connect(event: e.DesiredReceived) -> None:
        agent._connected = agent._connected or event.desired.full_state
        follow(event)

    agent._handlers[e.Connected] = lambda event: None
    agent._handlers[e.DesiredReceived] = follow_and_connect


def _open_at_once(agent: WorkerAgent) -> None:
    prewarmer = agent.prewarmer
    begin = prewarmer._begin

    def begin_and_open(entry: PrewarmEntry) -> None:
        begin(entry)
        if entry.missing and prewarmer._local.issuperset(
            a.digest for a in entry.spec.components.values()
        ):
            entry.missing.clear()
            entry.move(PrewarmState.FETCHED)
        if entry.state is PrewarmState.FETCHED:
            fetching = agent.state.in_phase(AttemptPhase.FETCHING)
            needed = {attempt.assignment.signature for attempt in fetching}
            if agent.instances.prewarm(entry.spec, needed):
                prewarmer._release(entry, PrewarmState.OPEN)

    _replace(prewarmer, "_begin", begin_and_open)


def _place_while_stopping(agent: WorkerAgent) -> None:
    stop = agent.attempts.stop

    def stop_and_place(attempt_id: str, failure: FailureReport) -> None:
        stop(attempt_id, failure)
        agent.attempts.place_waiting()

    _replace(agent.attempts, "stop", stop_and_place)


def _prepare_while_draining(agent: WorkerAgent) -> None:
    follow = agent._handlers[e.DesiredReceived]

    def follow_and_prepare(event: e.DesiredReceived) -> None:
        follow(event)
        listed = event.desired.prewarm
        if listed is not None and agent.reports.draining:
            agent.standby.allow()
            for spec in listed:
                agent.standby.request(spec)

    agent._handlers[e.DesiredReceived] = follow_and_prepare


def _forget_crashes(agent: WorkerAgent) -> None:
    exited = agent.standby.exited

    def exited_once(host_id: int) -> None:
        agent.standby._crashes.clear()
        exited(host_id)

    _replace(agent.standby, "exited", exited_once)


def _never_retry(agent: WorkerAgent) -> None:
    def retry(signature: str) -> None:
        pass

    _replace(agent.prewarmer, "retry", retry)


UNDONE: dict[str, Undone] = {
    "standby hosts import at once on devices": Undone(
        "Where engines compute on devices, standby hosts start whatever else starts or waits. The "
        "old agent started one at a time, and none while an engine loaded.",
        "On a worker with devices a standby host reserves nothing",
        _one_standby_at_a_time,
    ),
    "standby hosts come last": Undone(
        "A standby host is started after attempts and prewarms have been placed. The old agent "
        "started one the moment work asked for its preload, and often gave it to that same work.",
        "On a worker with devices a standby host reserves nothing",
        _standby_first,
    ),
    "an instance takes a standby host with its memory": Undone(
        "An instance that has no room beside its standby host takes over what that reserves. The "
        "old agent killed the host and started another.",
        "A standby host and the instance that could take it do not fit together",
        _standby_killed_first,
    ),
    "no instance is closed for nothing": Undone(
        "Idle instances are closed only where closing all of them would suffice, and only those "
        "that help. For an attempt the old agent closed them one by one although busy ones had the "
        "memory, also instances that use no device for one that needs a device.",
        "An attempt waits for a device while an instance without one is idle",
        _close_any_idle,
    ),
    "nothing is reported that has not changed": Undone(
        "The control plane gets instances and components only where some have changed. The old "
        "agent sent them whenever an instance became idle.",
        "An isolated attempt runs in a host of its own, which closes after it",
        _report_always,
    ),
    "storing counts against no timeout": Undone(
        "The timeout of an attempt ends with its run. The old agent ended attempts as timed out "
        "whose outputs it was storing.",
        "An attempt that runs longer than its timeout ends as timed out",
        _time_out_while_storing,
    ),
    "an attempt without a promised output keeps its checkpoint": Undone(
        "Such an attempt fails and is tried again, so its newest checkpoint is stored first, as "
        "with any failure of its engine. The old agent dropped it.",
        "Random world 1 is compared",
        _end_lacking_at_once,
    ),
    "a component that comes for an attempt serves its prewarm": Undone(
        "An entry of the prewarm list goes on when its component comes to the disk, whatever for. "
        "The old agent did not look then.",
        "Nothing is fetched ahead of work while an attempt fetches",
        _see_no_fetched_components,
    ),
    "prewarms go on with the connection": Undone(
        "Prewarming goes on when the control plane welcomes the worker. The old agent waited for "
        "its first full message.",
        "Nothing new opens ahead of work while there is no connection",
        _await_desired,
    ),
    "an entry without components does not wait for the disk": Undone(
        "Entries that have no components start before those whose components are on the disk. The "
        "old agent started both in the order of the list.",
        "Random world 38 is compared",
        _open_at_once,
    ),
    "attempts that stop together start no host for each other": Undone(
        "Waiting attempts are placed when all that stop in one event have. The old agent placed "
        "the next after each, though that was to stop too.",
        "Random world 38 is compared",
        _place_while_stopping,
    ),
    "a draining worker starts no standby host": Undone(
        "A prewarm list that comes while the worker drains changes nothing. In the old agent it "
        "started a standby host, which was killed when the worker left.",
        "A prewarm list comes while the worker drains",
        _prepare_while_draining,
    ),
    "a standby host that keeps crashing is given up": Undone(
        "After three crashes no other is started for its preload. The old agent started one at "
        "once after each, for ever.",
        "A standby host that crashes again and again is started three times",
        _forget_crashes,
    ),
    "a prewarm is tried again after a store error": Undone(
        "The store may work again a minute later. The old agent never fetched the entry again.",
        "The store fails the component of a prewarm, and of another that leaves the list",
        _never_retry,
    ),
}
