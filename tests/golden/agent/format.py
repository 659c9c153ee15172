"""Scenarios for a worker's agent and what it does in them, as plain data.

A scenario is a world without choices: what the worker has, what the control plane sends and when,
and how long everything takes that the agent starts. Whatever decides can be driven through it: its
effects are compared as lists of :data:`Effect`. A harness keeps to these rules:

* Time is virtual and begins at 0. An *instant* lasts until nothing is left to do without time going
  by. Effects of one instant have no order; :func:`ordered` gives them one.
* The first thing that a worker does about an event may happen in the same instant, so every
  duration of 0 ends in the instant in which it began.
* Connected, the worker sends a Sync at the end of an instant in which it has anything to report
  (mere progress waits 0.01 s for company), and each full second after the connection began. Each
  30th of the latter repeats all ends that are not acknowledged. A Sync without content is not
  recorded.
* A phase is recorded at the end of an instant, of attempts that have not ended.
* Components are fetched once for all that need them at the time; a fetch that nothing waits for any
  more is given up. What was fetched stays on the disk.
* A host does one import or load at a time. It exits ``close_s`` after it was asked to close, unless
  an attempt in it ignores cancellation: then it goes on until it is ended.
"""

from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

OLD = Path(__file__).parent / "old"
UNITS = 100
"""The work of each attempt, of which it reports how much is done."""
ASLEEP_DEVICE_MIB = 50
"""What an instance leaves on each device while it is asleep."""
_MILLISECONDS = 3


class EffectKind(StrEnum):
    """What the second item of an effect may be; the comment names the items after it."""

    HOST_START = "host-start"  # key, signature, memory in MiB, devices, preload of its standby host
    HOST_CLOSE = "host-close"  # key
    HOST_KILL = "host-kill"  # key
    RUN = "run"  # key, attempt, whether it begins at a checkpoint
    CANCEL = "cancel"  # key, attempt
    STOP = "stop"  # key, attempt: it should hand over a checkpoint and itself
    RELEASE = "release"  # key, attempt: its files may go
    STANDBY_START = "standby-start"  # preload
    STANDBY_STOP = "standby-stop"  # preload
    FETCH = "fetch"  # attempt: its inputs
    FETCH_CANCELLED = "fetch-cancelled"  # attempt
    FETCH_CHECKPOINT = "fetch-checkpoint"  # attempt
    FETCH_COMPONENT = "fetch-component"  # digest
    FETCH_COMPONENT_CANCELLED = "fetch-component-cancelled"  # digest
    STORE = "store"  # attempt: its outputs
    STORE_CANCELLED = "store-cancelled"  # attempt
    STORE_CHECKPOINT = "store-checkpoint"  # attempt, units done
    PHASE = "phase"  # attempt, phase, where it is another than at the end of the last instant
    END = "end"  # attempt, failure or "completed", fetch, load, run and put seconds, resumed, log
    HELLO = "hello"  # a Message
    SYNC = "sync"  # a Message
    LEAVE = "leave"  # nothing


Effect = tuple[Any, ...]
"""Seconds since the start to three decimals, an :class:`EffectKind`, and what the kind has.

The *key* of an instance is its signature, or the attempt that it is isolated for.
"""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker reports: all of it in a Hello, the changes in a Sync.

    Attributes:
        progress: of each attempt its phase and how many of 100 units are done, by id.
        ended: attempts.
        checkpoints: of each attempt the units done at its newest one; -1 where the one that it was
            assigned is spoiled.
        instances_changed: whether a Sync has all instances.
        instances: signature, state, capacity, memory and load seconds of each, in order; None where
            that is as it was reported last.
        components_changed: whether a Sync has all components.
        components: digest and tier of each, in order; None where that is as it was reported last.
        logs: attempt and text.
        goodbye: the worker leaves.
    """

    progress: dict[str, tuple[str, float]] = {}
    ended: tuple[str, ...] = ()
    checkpoints: dict[str, float] = {}
    instances_changed: bool = False
    instances: tuple[tuple[str, str, int, int, float], ...] | None = None
    components_changed: bool = False
    components: tuple[tuple[str, str], ...] | None = None
    logs: tuple[tuple[str, str], ...] = ()
    draining: bool = False
    goodbye: bool = False


class Preload(msgspec.Struct, frozen=True, omit_defaults=True):
    """The libraries that a standby host imports.

    Attributes:
        memory_mib: reserved on a worker without devices.
        failure: ``import`` where the host reports that it cannot, ``exit`` where it exits instead,
            ``start`` where its process cannot be started.
    """

    name: str
    memory_mib: int = 100
    start_s: float = 0.0
    import_s: float = 1.0
    failure: str = ""


class Engine(msgspec.Struct, frozen=True, omit_defaults=True):
    """An engine of the worker.

    Attributes:
        accelerated: whether its instances own devices, where the worker has any.
        capacity: how many attempts a loaded instance runs at once.
        mixable: ports whose components come with each attempt.
        preload: the name of its :class:`Preload`; only for an accelerated engine.
    """

    name: str
    accelerated: bool = False
    capacity: int = 1
    mixable: tuple[str, ...] = ()
    preload: str = ""


class Component(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model or an adapter.

    Attributes:
        failure: the kind that its fetch ends with: ``store``, ``missing-blob`` or ``bad-input``.
    """

    digest: str
    fetch_s: float = 1.0
    failure: str = ""
    on_disk: bool = False


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the instances of one signature are.

    Attributes:
        engine: an :class:`Engine`, or a name that the worker does not know.
        devices: how many an accelerated one owns, where the worker has any.
        components: digests, for the ports ``c0``, ``c1`` and so on.
        start_fails: the process cannot be started.
        load_failure: a kind of failure, or ``crash`` where the host exits.
        asleep_mib: host memory that an instance takes while it is asleep; 0 where it cannot sleep.
        sleep_fails, wake_fails: the host reports that it cannot.
    """

    name: str
    engine: str
    memory_mib: int = 100
    devices: int = 1
    components: tuple[str, ...] = ()
    start_s: float = 0.0
    start_fails: bool = False
    load_s: float = 1.0
    load_failure: str = ""
    close_s: float = 0.0
    asleep_mib: int = 0
    sleep_s: float = 0.0
    wake_s: float = 0.0
    sleep_fails: bool = False
    wake_fails: bool = False


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt, and what becomes of it.

    Attributes:
        adapter: digest of a component for the mixable port ``adapter``; empty for none.
        fetch_s: seconds of fetching an input; None where all inputs come with the assignment.
        fetch_failure: a kind as of :class:`Component`.
        preflight_failure: a kind of failure found before anything is fetched.
        resume_s: seconds of fetching the checkpoint that it is assigned; None where there is none.
        resume_at: how far that was, from 0 to 1.
        run_s: seconds of the whole work; a resumed attempt does the rest of it.
        failure: how it ends: a kind of failure, ``crash`` where its host exits, or empty.
        kernel_oom: at its end the kernel has killed a process for want of memory.
        cancel_s: seconds until it obeys a cancellation; None where it never does.
        progress: how far it is, from 0 to 1, when it reports progress.
        checkpoints: how far it is when it hands over a checkpoint.
        lines: how far it is when its host prints a line.
        stop_s: seconds until it obeys a request to stop; None where it never does.
        stop_checkpoint: whether it then hands over a checkpoint.
        checkpoint_store_fails: whether its checkpoints cannot be stored.
        outputs: ``inline``, ``store``, or ``missing`` where a promised one is not there.
        store_failure: a kind as of :class:`Component`. Storing fails with ``store`` too where the
            host has exited by its end.
    """

    id: str
    signature: str
    priority: int = 0
    timeout_s: float = 0.0
    isolate: bool = False
    adapter: str = ""
    fetch_s: float | None = None
    fetch_failure: str = ""
    preflight_failure: str = ""
    resume_s: float | None = None
    resume_at: float = 0.5
    resume_spoiled: bool = False
    run_s: float = 1.0
    failure: str = ""
    kernel_oom: bool = False
    cancel_s: float | None = 0.0
    progress: tuple[float, ...] = ()
    checkpoints: tuple[float, ...] = ()
    lines: tuple[float, ...] = ()
    stop_s: float | None = None
    stop_checkpoint: bool = False
    checkpoint_store_s: float = 0.0
    checkpoint_store_fails: bool = False
    keeps_files: bool = False
    outputs: str = "inline"
    store_s: float = 0.0
    store_failure: str = ""

    def offset_s(self, fraction: float, *, resumed: bool) -> float:
        """Returns the seconds from its start in a host until it is so far; negative: it was."""
        begin = self.resume_at if resumed else 0.0
        return round((fraction - begin) * self.run_s, _MILLISECONDS)


class Prewarm(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the prewarm list.

    Attributes:
        memory_mib: another amount than the signature's; 0: the same.
        implementation: of the engine; the worker's are all 1.
    """

    signature: str
    memory_mib: int = 0
    implementation: int = 1


class ListedReplica(msgspec.Struct, frozen=True, omit_defaults=True):
    """A replica of a service; its service is named like it."""

    id: str
    signature: str
    memory_mib: int = 0


class Connect(msgspec.Struct, frozen=True, tag="connect"):
    """The worker sends Hello, and the control plane answers with Welcome."""

    t: float


class Disconnect(msgspec.Struct, frozen=True, tag="disconnect"):
    """The connection breaks."""

    t: float


class Orphan(msgspec.Struct, frozen=True, tag="orphan"):
    """The worker gives up connecting, and leaves."""

    t: float


class Send(msgspec.Struct, frozen=True, omit_defaults=True, tag="send"):
    """The control plane sends Desired; nothing comes of it while there is no connection."""

    t: float
    assign: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()
    acknowledged: tuple[str, ...] = ()
    everything: bool = False
    keep: tuple[str, ...] = ()
    drain: bool = False
    hold_open: tuple[Prewarm, ...] | None = None
    forget: tuple[str, ...] = ()
    replicas: tuple[ListedReplica, ...] | None = None
    routers: tuple[str, ...] | None = None


class Calls(msgspec.Struct, frozen=True, omit_defaults=True, tag="calls"):
    """The hub reports the calls of a replica."""

    t: float
    replica: str
    calls: int
    units: int = 0


class HubExit(msgspec.Struct, frozen=True, tag="hub-exit"):
    """The hub that was started last ends."""

    t: float


class Sigterm(msgspec.Struct, frozen=True, tag="sigterm"):
    """The worker gets SIGTERM."""

    t: float


class Fault(msgspec.Struct, frozen=True, omit_defaults=True, tag="fault"):
    """Something happens to a host, if there is one that has started.

    Attributes:
        key: of the instance, or the name of a preload.
        kind: ``crash`` (exit code 1), ``oom-kill`` (SIGKILL by the kernel), ``memory`` (it uses
            more than it reserved and is to be ended), ``silence`` (its heartbeat has stopped and it
            is to be ended), or ``standby-crash``.
    """

    t: float
    key: str
    kind: str = "crash"


Input = Connect | Disconnect | Orphan | Send | Calls | HubExit | Sigterm | Fault


class Scenario(msgspec.Struct, frozen=True, omit_defaults=True):
    """A world for one worker.

    Attributes:
        name: a sentence.
        inputs: in the order of their times.
        until_s: when recording ends, unless the worker has left.
        memory_mib: of the host; ``device_mib`` of each of its devices.
        acknowledge_after_s: how long after each message that reports ends the control plane
            acknowledges them; None where it never does by itself.
        hub_start_s: how long its hub takes to start; None where the worker has none.
        sleep_mib: of the host, for instances that are asleep.
    """

    name: str
    engines: tuple[Engine, ...]
    signatures: tuple[Signature, ...]
    attempts: tuple[Attempt, ...]
    inputs: tuple[Input, ...]
    until_s: float
    preloads: tuple[Preload, ...] = ()
    components: tuple[Component, ...] = ()
    memory_mib: int = 1000
    devices: int = 0
    device_mib: int = 0
    grace_s: float = 30.0
    acknowledge_after_s: float | None = 0.05
    hub_start_s: float | None = None
    sleep_mib: int = 0


class Recording(msgspec.Struct, frozen=True):
    """A file of recorded effects.

    Attributes:
        about: what was recorded, and from which commit.
        effects: in order, see :func:`ordered`.
    """

    about: str
    scenario: Scenario
    effects: list[Effect]


def seconds(value: float) -> float:
    """Returns a time or a duration as effects have it; no negative zero."""
    return round(value, _MILLISECONDS) + 0.0


def done_units(fraction: float) -> float:
    """Returns the units that are done where an attempt is so far, from 0 to 1."""
    return round(fraction * UNITS, _MILLISECONDS)


def ordered(effects: list[Effect]) -> list[Effect]:
    """Returns effects as a recording has them.

    They are sorted by time, and within an instant in an order that only depends on them.
    """
    in_order = sorted(effects, key=lambda effect: (effect[0], msgspec.json.encode(effect)))
    return msgspec.json.decode(msgspec.json.encode(in_order), type=list[Effect])


def path_of(name: str, folder: Path = OLD) -> Path:
    """Returns the file of a scenario's recording."""
    words = "".join(c if c.isalnum() else " " for c in name.lower()).split()
    return folder / f"{'-'.join(words)}.json"


def write_recording(recording: Recording, folder: Path = OLD) -> Path:
    """Writes a recording, an effect a line, and returns its file."""
    folder.mkdir(exist_ok=True)
    path = path_of(recording.scenario.name, folder)
    encode = msgspec.json.encode
    effects = b",\n".join(encode(effect) for effect in recording.effects)
    parts = (encode(recording.about), encode(recording.scenario), effects)
    path.write_bytes(b'{"about":%b,\n"scenario":%b,\n"effects":[\n%b\n]}\n' % parts)
    return path


def read_recording(path: Path) -> Recording:
    """Reads what :func:`write_recording` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Recording)
