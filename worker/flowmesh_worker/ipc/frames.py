"""The messages between the worker agent and an engine host.

A frame is a length of four bytes (big-endian) and a MessagePack list: all messages that one side
sends in one iteration of its event loop. Nothing here is stored or read by another version: both
ends come from the same installation.
"""

from typing import Any

import msgspec

from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.units import Digest


class HostInput(msgspec.Struct, frozen=True, array_like=True):
    """An input: files on the local disk, or bytes if it is small.

    Attributes:
        kind: ``dataset``, ``tree`` or ``blob``.
        digest: its identity.
        manifest: of a dataset.
        paths: the chunks' files in order, the directory, or the file.
        contents: bytes by blob digest for chunks (or the blob) that have no file.
        blob: the key of a blob in ``contents``.
        verified: the numbers of chunks whose rows this worker has compared with their identity.
    """

    kind: str
    digest: Digest
    paths: tuple[str, ...] = ()
    manifest: Manifest | None = None
    contents: dict[Digest, bytes] = {}
    blob: Digest = Digest("")
    verified: tuple[int, ...] = ()


class HostOutput(msgspec.Struct, frozen=True, array_like=True):
    """An output as the host has prepared it.

    Attributes:
        kind: ``dataset``, ``tree``, ``metrics`` or ``blob``.
        manifest: of a dataset.
        contents: bytes by digest: chunks, metrics in canonical form, a small blob.
        files: paths by digest, for chunks that are large.
        path: the directory of a tree, or the file of a blob.
        value: of metrics.
        main: the digest of metrics or of a blob in ``contents``.
    """

    kind: str
    manifest: Manifest | None = None
    contents: dict[Digest, bytes] = {}
    files: dict[Digest, str] = {}
    path: str = ""
    value: dict[str, Any] | None = None
    main: Digest = Digest("")


class HostUsage(msgspec.Struct, frozen=True, array_like=True):
    """The resources that an attempt used, as measured by the engine and the host."""

    run_s: float = 0.0
    units: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    joules: float = 0.0
    peak_memory_mib: int = 0


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag="prepare"):
    """Import these modules, so that an engine loads sooner. Sent before ``Start`` or not at all."""

    modules: tuple[str, ...]
    threads: int
    on_devices: bool


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """Load this engine. Sent once; only ``Prepare`` may precede it.

    Attributes:
        engine: its name; ``loads`` is its class as ``module:attribute``.
        components: the components to load, by port.
        mixed: the ports whose components come with each attempt instead.
        sleeps: whether the host may be asked to fall asleep.
    """

    engine: str
    loads: str
    components: dict[str, HostInput]
    devices: tuple[int, ...]
    memory_mib: int
    threads: int
    signature_params: dict[str, Any]
    scratch: str
    mixed: tuple[str, ...] = ()
    sleeps: bool = False


class RunAttempt(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Run one attempt; ``resume`` is the directory of the checkpoint to begin at."""

    attempt_id: str
    action_id: Digest
    params: dict[str, Any]
    fields: dict[str, Any]
    inputs: dict[str, HostInput]
    row_output: str
    cache_salt: str
    priority: int
    secrets: dict[str, str]
    resume: HostInput | None = None
    secret_hosts: dict[str, tuple[str, ...]] = {}
    tenant: str = ""


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """The worker leaves: the attempt should write a checkpoint and stop."""

    attempt_id: str


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """Cancel an attempt; it fails with kind ``cancelled`` unless it has ended already."""

    attempt_id: str


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release"):
    """The outputs of an attempt are stored; remove its directory."""

    attempt_id: str


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """Close the engine and exit."""


class FallAsleep(msgspec.Struct, frozen=True, array_like=True, tag="sleep"):
    """Free the devices and keep the process and the weights; nothing runs in the host."""


class WakeUp(msgspec.Struct, frozen=True, array_like=True, tag="wake"):
    """Take the devices' memory back."""


class ListenForCalls(msgspec.Struct, frozen=True, array_like=True, tag="listen"):
    """Take calls of services on this Unix socket, once the engine is loaded."""

    socket: str


class Prepared(msgspec.Struct, frozen=True, array_like=True, tag="prepared"):
    """The modules are imported; on failure ``error`` says why, and the engine's load fails too."""

    error: str = ""


class Loaded(msgspec.Struct, frozen=True, array_like=True, tag="loaded"):
    """The engine is loaded and accepts attempts.

    Attributes:
        libraries: versions of the libraries that it has imported.
        asleep_mib: host memory that it takes while it is asleep; 0 if it cannot sleep.
    """

    capacity: int
    load_s: float
    libraries: dict[str, str]
    asleep_mib: int = 0


class LoadFailed(msgspec.Struct, frozen=True, array_like=True, tag="load-failed"):
    """The engine could not be loaded; the host exits."""

    failure: FailureReport


class Asleep(msgspec.Struct, frozen=True, array_like=True, tag="asleep"):
    """The host has freed its devices."""


class Awake(msgspec.Struct, frozen=True, array_like=True, tag="awake"):
    """The host accepts attempts again, ``wake_s`` after it was asked to."""

    wake_s: float


class SleepFailed(msgspec.Struct, frozen=True, array_like=True, tag="sleep-failed"):
    """The host could not fall asleep, or could not wake."""

    failure: FailureReport


class Progressed(msgspec.Struct, frozen=True, array_like=True, tag="progressed"):
    """The progress of an attempt."""

    attempt_id: str
    done: float
    total: float
    unit: str


class Checkpointed(msgspec.Struct, frozen=True, array_like=True, tag="checkpointed"):
    """An attempt wrote a checkpoint: a directory that the agent owns from now on.

    Attributes:
        is_journal: the directory stays the host's, which appends to it. The agent takes it as the
            newest checkpoint if the host ends before the attempt.
    """

    attempt_id: str
    path: str
    done: float
    is_journal: bool = False


class AttemptEnded(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """An attempt ended.

    Attributes:
        keeps_files: whether outputs stay in the attempt's directory until ``Release``.
        libraries: as in ``Loaded``, if they changed since; else None.
        verified: by port, the numbers of chunks that this attempt was the first to compare.
    """

    attempt_id: str
    outputs: dict[str, HostOutput]
    failure: FailureReport | None
    usage: HostUsage
    keeps_files: bool
    libraries: dict[str, str] | None = None
    verified: dict[str, tuple[int, ...]] = {}


ToHost = (
    Prepare
    | Start
    | RunAttempt
    | Stop
    | Cancel
    | Release
    | Close
    | FallAsleep
    | WakeUp
    | ListenForCalls
)
FromHost = (
    Prepared
    | Loaded
    | LoadFailed
    | Asleep
    | Awake
    | SleepFailed
    | Progressed
    | Checkpointed
    | AttemptEnded
)
