"""Transition tables of attempts, engine instances, standby hosts, prewarm entries and replicas.

The agent checks every change of state with ``check_transition``; ``docs/states.md`` has the tables
in prose.
"""

from enum import StrEnum

from flowmesh_core.errors import InvariantError


class AttemptPhase(StrEnum):
    """The phase of an attempt on its worker."""

    NEW = "new"
    FETCHING = "fetching"
    WAITING = "waiting"
    """There is no memory for its engine instance yet; reported as ``queued``."""
    LOADING = "loading"
    QUEUED = "queued"
    RUNNING = "running"
    STORING = "storing"
    ENDED = "ended"


class InstanceState(StrEnum):
    """The state of an engine instance; all but ``gone`` are reported."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    FALLING_ASLEEP = "falling-asleep"
    """It frees its device's memory; nothing joins it. Reported as ``closing`` and asleep."""
    ASLEEP = "asleep"
    """It has its process and its weights, in host memory. Reported as ``closing`` and asleep."""
    WAKING = "waking"
    """It gets its memory back; reported as ``loading``."""
    CLOSING = "closing"
    GONE = "gone"


class StandbyState(StrEnum):
    """The state of a standby host."""

    IMPORTING = "importing"
    READY = "ready"
    TAKEN = "taken"
    GONE = "gone"


class PrewarmState(StrEnum):
    """The state of an entry of the prewarm list."""

    LISTED = "listed"
    FETCHING = "fetching"
    FETCHED = "fetched"
    """Its components are on the disk and stay there; it can be started when there is memory."""
    OPEN = "open"
    """There is an engine instance of its signature, started for it or for an attempt."""
    FAILED = "failed"
    """It is not tried again until the control plane changes the entry, an attempt loads the engine,
    or, if the store was the cause, a minute has passed."""
    DELISTED = "delisted"


class ReplicaState(StrEnum):
    """The state of a replica of a service; all but ``gone`` are reported."""

    FETCHING = "fetching"
    LOADING = "loading"
    """It waits for memory, for its engine instance to load, or for the hub."""
    READY = "ready"
    """The hub admits calls to its engine instance."""
    FAILED = "failed"
    """It cannot be fetched or loaded here now; it is tried again after a delay."""
    CLOSING = "closing"
    """It is off the list; calls that are in it end, and no other enters."""
    GONE = "gone"


class HubState(StrEnum):
    """The state of the hub, the process that takes calls from routers."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    """It exited by itself, and is started again after a delay."""


State = AttemptPhase | InstanceState | StandbyState | PrewarmState | ReplicaState | HubState

_A, _I, _S, _P = AttemptPhase, InstanceState, StandbyState, PrewarmState
_R, _H = ReplicaState, HubState

ATTEMPT_TRANSITIONS: frozenset[tuple[State, State]] = frozenset(
    {
        (_A.NEW, _A.FETCHING),
        (_A.NEW, _A.ENDED),  # refused
        (_A.FETCHING, _A.WAITING),
        (_A.FETCHING, _A.LOADING),
        (_A.FETCHING, _A.QUEUED),
        (_A.FETCHING, _A.ENDED),
        (_A.WAITING, _A.LOADING),
        (_A.WAITING, _A.QUEUED),
        (_A.WAITING, _A.ENDED),
        (_A.LOADING, _A.QUEUED),
        (_A.LOADING, _A.WAITING),  # its host did not wake
        (_A.LOADING, _A.ENDED),
        (_A.QUEUED, _A.RUNNING),
        (_A.QUEUED, _A.WAITING),  # its host died before the attempt began
        (_A.QUEUED, _A.ENDED),
        (_A.RUNNING, _A.STORING),
        (_A.RUNNING, _A.ENDED),
        (_A.STORING, _A.ENDED),
    }
)
INSTANCE_TRANSITIONS: frozenset[tuple[State, State]] = frozenset(
    {
        (_I.STARTING, _I.LOADING),
        (_I.STARTING, _I.GONE),
        (_I.LOADING, _I.READY),
        (_I.LOADING, _I.GONE),
        (_I.READY, _I.FALLING_ASLEEP),
        (_I.READY, _I.CLOSING),
        (_I.READY, _I.GONE),
        (_I.FALLING_ASLEEP, _I.ASLEEP),
        (_I.FALLING_ASLEEP, _I.CLOSING),  # it cannot sleep
        (_I.FALLING_ASLEEP, _I.GONE),
        (_I.ASLEEP, _I.WAKING),
        (_I.ASLEEP, _I.CLOSING),
        (_I.ASLEEP, _I.GONE),
        (_I.WAKING, _I.READY),
        (_I.WAKING, _I.GONE),
        (_I.CLOSING, _I.GONE),
    }
)
STANDBY_TRANSITIONS: frozenset[tuple[State, State]] = frozenset(
    {
        (_S.IMPORTING, _S.READY),
        (_S.IMPORTING, _S.TAKEN),
        (_S.IMPORTING, _S.GONE),
        (_S.READY, _S.TAKEN),
        (_S.READY, _S.GONE),
    }
)
PREWARM_TRANSITIONS: frozenset[tuple[State, State]] = frozenset(
    {
        (_P.LISTED, _P.FETCHING),
        (_P.LISTED, _P.FETCHED),  # it has no components
        (_P.LISTED, _P.OPEN),
        (_P.LISTED, _P.FAILED),
        (_P.LISTED, _P.DELISTED),
        (_P.FETCHING, _P.FETCHED),
        (_P.FETCHING, _P.OPEN),
        (_P.FETCHING, _P.FAILED),
        (_P.FETCHING, _P.DELISTED),
        (_P.FETCHED, _P.OPEN),
        (_P.FETCHED, _P.FAILED),
        (_P.FETCHED, _P.DELISTED),
        (_P.OPEN, _P.LISTED),
        (_P.OPEN, _P.FAILED),
        (_P.OPEN, _P.DELISTED),
        (_P.FAILED, _P.LISTED),  # the store may work again
        (_P.FAILED, _P.OPEN),
        (_P.FAILED, _P.DELISTED),
    }
)
REPLICA_TRANSITIONS: frozenset[tuple[State, State]] = frozenset(
    {
        (_R.FETCHING, _R.LOADING),
        (_R.FETCHING, _R.FAILED),
        (_R.FETCHING, _R.GONE),
        (_R.LOADING, _R.FETCHING),  # its engine instance is closing, or was lost
        (_R.LOADING, _R.READY),
        (_R.LOADING, _R.FAILED),
        (_R.LOADING, _R.CLOSING),
        (_R.LOADING, _R.GONE),
        (_R.READY, _R.LOADING),  # the hub exited
        (_R.READY, _R.FAILED),  # its host died
        (_R.READY, _R.CLOSING),
        (_R.READY, _R.GONE),
        (_R.FAILED, _R.FETCHING),
        (_R.FAILED, _R.LOADING),  # an attempt has loaded its engine
        (_R.FAILED, _R.GONE),
        (_R.CLOSING, _R.LOADING),  # it is listed again
        (_R.CLOSING, _R.GONE),
    }
)
HUB_TRANSITIONS: frozenset[tuple[State, State]] = frozenset(
    {
        (_H.STOPPED, _H.STARTING),
        (_H.STARTING, _H.READY),
        (_H.STARTING, _H.FAILED),
        (_H.STARTING, _H.STOPPED),
        (_H.READY, _H.FAILED),
        (_H.READY, _H.STOPPED),
        (_H.FAILED, _H.STARTING),
        (_H.FAILED, _H.STOPPED),
    }
)
TRANSITIONS = (
    ATTEMPT_TRANSITIONS
    | INSTANCE_TRANSITIONS
    | STANDBY_TRANSITIONS
    | PREWARM_TRANSITIONS
    | REPLICA_TRANSITIONS
    | HUB_TRANSITIONS
)


def check_transition(before: State, after: State, subject: str) -> None:
    """Returns if the tables allow the change.

    Raises:
        InvariantError: they do not; the message names both states and ``subject``.
    """
    if (before, after) not in TRANSITIONS:
        raise InvariantError(
            f"{subject} cannot change from {before.value!r} to {after.value!r}",
            remedy="please report it with the worker's log",
        )
