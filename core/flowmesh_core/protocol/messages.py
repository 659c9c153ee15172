"""The worker protocol, version 2.

A worker asks the gateway for a WebSocket with its token in the header ``Authorization``; without a
valid one the answer is 401 and no message is read. Then it sends :class:`Hello`, its full state.
The gateway answers :class:`Welcome` (or :class:`Refused`, and closes). After that both sides send
deltas with sequence numbers that start at 1 and rise by one in each direction:

* the worker sends :class:`Sync` at least every ``sync_interval_s`` (empty if need be: it is the
  heartbeat), and at once when an attempt starts, loads or ends;
* the control plane sends :class:`Desired` whenever the worker's desired state changes.

Every message is idempotent: an attempt assigned twice runs once, an end reported twice counts once,
a cancel of an unknown attempt does nothing. After any break (closed socket, gap in the numbers) the
worker connects again and sends its full state again; it retains a finished attempt's report until
the control plane acknowledges it, once the result is published or refused.

Epochs: a control plane states its epoch in every message; a worker refuses a lower epoch than it
has seen.

An assignment carries an attempt token (``attempt_tokens``), which the worker returns whole with the
attempt's end and checkpoints, and with all attempts that it has when it connects again. The gateway
drops and counts every item of a message that names an attempt which was not assigned on this
connection, unless its token is valid and was issued to this worker process; and every item that
fails ``validation``. A malformed end of one of its own attempts fails the attempt. Each is a
protocol violation (``control.workers.violations``). The gateway closes a connection of which it
dropped ten items within a minute.

Messages are MessagePack; unknown fields are ignored, so fields may be added within a version. A
worker of another version is refused with a reason.
"""

from typing import Any

import msgspec

from flowmesh_api.v1.fabric import Component as Component  # noqa: PLC0414 - for workers
from flowmesh_api.v1.fabric import EngineInstanceState as EngineInstanceState  # noqa: PLC0414
from flowmesh_api.v1.fabric import EngineVariant as EngineVariant  # noqa: PLC0414
from flowmesh_api.v1.fabric import EngineVersion as EngineVersion  # noqa: PLC0414
from flowmesh_api.v1.fabric import WorkerShape as WorkerShape  # noqa: PLC0414
from flowmesh_core.decoding import decode
from flowmesh_core.protocol.results import Artifact, Usage
from flowmesh_core.stages.stage_timing import StageTiming
from flowmesh_core.units import Digest

PROTOCOL_VERSION = 2
REFUSAL_HEADER = "FlowMesh-Reason"
"""Header with the reason where a request for a WebSocket is refused."""


class InputRef(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An input of an assignment.

    Attributes:
        artifact: the content; for a dataset input its manifest is filled in, unless it is large, in
            which case the worker reads it from ``artifact.blob``.
        inline: contents of small blobs, so that nothing needs fetching.
    """

    artifact: Artifact
    inline: dict[Digest, bytes] = {}


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One attempt that the worker should run.

    Attributes:
        attempt_id: unique; names the action, the epoch and a number.
        signature: attempts of one signature share an engine host.
        engine: the engine's name.
        params: typed parameters, ``fields`` the identity fields.
        signature_params: batch-wide parameters, for the host's start.
        components: input ports whose artifacts the host loads (``adapter`` may be mixable).
        row_output: for a chunk of a row-wise step, the output port that must stay one chunk.
        memory_mib: device memory to reserve for the host (host memory on a CPU).
        tensor_parallel: devices of the host.
        priority: higher first.
        timeout_s: limit of the run time; 0 is unlimited.
        isolate: run it alone in a host of its own (suspected of poison, or audited).
        cache_salt: separates prefix caches.
        secrets: for this attempt only.
        secret_hosts: by name, the hosts that a secret may be sent to: a host, ``*.suffix`` or ``*``
            for any; none where the name is missing.
        run_uids: subscribed runs, for logs.
        resume: the action's newest checkpoint, a tree, to begin at; a worker that cannot read it
            reports that (``Checkpoint.spoiled``) and begins at the start.
        token: the attempt token; the worker returns it whole.
        tenant: whose user code the attempt runs; empty where it runs none.
    """

    attempt_id: str
    action_id: Digest
    signature: Digest
    engine: str
    contract: int
    implementation: int
    params: dict[str, Any]
    fields: dict[str, Any]
    inputs: dict[str, InputRef]
    signature_params: dict[str, Any] = {}
    components: tuple[str, ...] = ()
    row_output: str = ""
    memory_mib: int = 0
    tensor_parallel: int = 1
    priority: int = 0
    timeout_s: float = 0.0
    isolate: bool = False
    cache_salt: str = ""
    secrets: dict[str, str] = {}
    run_uids: tuple[str, ...] = ()
    resume: InputRef | None = None
    secret_hosts: dict[str, tuple[str, ...]] = {}
    token: str = ""
    tenant: str = ""


class PrewarmSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """An engine host that the worker should have open, though nothing may run in it yet.

    Attributes:
        signature: of the attempts to come, which will use the host.
        components: the models that it loads at its start, by port.
        per_attempt_components: ports of components that come with each attempt.
        read_scopes: where the components may lie: those of the last run that would use the host.
        token: shown to the blob service; it reads in those scopes, and has no attempt.
        the rest: as in :class:`Assignment`.
    """

    signature: Digest
    engine: str
    contract: int
    implementation: int
    components: dict[str, Artifact] = {}
    per_attempt_components: tuple[str, ...] = ()
    read_scopes: tuple[str, ...] = ()
    signature_params: dict[str, Any] = {}
    memory_mib: int = 0
    tensor_parallel: int = 1
    token: str = ""


class RouterAddress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a worker's hub reaches a router of services.

    Attributes:
        address: ``unix:`` and the path of a socket (on a laptop), or ``tls:host:port``.
        group: the routers that serve the same services; empty is the only group.
        ca: certificates (PEM) with which the hub verifies a router at a ``tls:`` address. The name
            may stand for several routers: the hub connects to each address that it has.
        certificate: the hub's link certificate for these routers (``link_certificates``); empty for
            a Unix socket.
        key: the certificate's private key (PEM).
        authorities: certificates (PEM) with which the hub verifies hubs of other workers.
    """

    address: str
    group: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    authorities: str = ""


_CODE_HOST = "code.component"


class ServingReplica(msgspec.Struct, frozen=True, omit_defaults=True):
    """A replica of a service's component: an engine instance that stays open for calls.

    Unlike a prewarmed engine it is not closed for attempts: its instance is pinned, and its memory
    reserved, while the control plane lists it. Replicas of one signature share one instance, with
    each other and with attempts.

    Attributes:
        replica_id: unique; ``namespace/service/component/release/number``.
        service: ``namespace/name``.
        component: of that service.
        release: the digests that the service consists of, by one name; another set has another.
        opening: what its engine host loads.
        calls_max: calls that it takes at once; 0 is what the engine can.
        salts: by namespace of a caller, what separates its prefix cache.
        timings: by stage that calls it, what a call may take.
        halvings: how often replicas of its signature ran out of memory on such workers: so often
            its calls at once are halved.
        ttft_s: the target of the time to the first token of its answers; 0 for none.
        tpot_s: the target of the time of each further token; 0 for none.
    """

    replica_id: str
    service: str
    component: str
    release: str
    opening: PrewarmSpec
    calls_max: int = 0
    salts: dict[str, str] = {}
    timings: dict[str, StageTiming] = {}
    halvings: int = 0
    ttft_s: float = 0.0
    tpot_s: float = 0.0

    @property
    def code_tenant(self) -> str:
        """The namespace whose code it runs; empty where it runs none."""
        params = self.opening.signature_params
        return str(params.get("namespace", "")) if self.opening.engine == _CODE_HOST else ""


class ServingReplicaState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The state of a replica on its worker.

    Attributes:
        state: ``fetching``, ``loading``, ``ready``, ``closing`` or ``failed``; only a ready one
            takes calls.
        reason: why it has failed, or waits; else empty.
        calls: calls in it now.
        units: work that its calls have done so far in this instance, in the contract's unit.
        signature: of its engine instance.
        memory_mib: what the worker reserves for that, whether it is loaded or not.
        token: of the replica's opening: the proof, to a later leader, that it was given to this
            worker process.
        halvings: how often its calls at once are halved, since its host ran out of memory.
        code_failures: how often in a row its user's code, model or adapter could not be used.
        call_s: seconds that the calls took, from when they ran, that have done ``units``.
    """

    replica_id: str
    state: str
    reason: str = ""
    calls: int = 0
    units: int = 0
    signature: Digest = Digest("")
    memory_mib: int = 0
    token: str = ""
    halvings: int = 0
    code_failures: int = 0
    call_s: float = 0.0


class FailureReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A failure on the wire; see ``flowmesh_core.errors.Failure``."""

    kind: str
    message: str
    remedy: str = ""
    detail: str = ""
    retry_after_s: float = 0.0
    reason: str = ""


class AttemptEnd(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The end of an attempt, which the worker retains until it is acknowledged.

    Attributes:
        outputs: artifacts by port; empty after a failure. Everything that they name is stored
            already, or is in ``inline``.
        failure: None after a success.
        log: the last lines that the host printed during the attempt.
        token: the attempt's, as it was assigned.
    """

    attempt_id: str
    action_id: Digest
    outputs: dict[str, Artifact] = {}
    inline: dict[Digest, bytes] = {}
    failure: FailureReport | None = None
    usage: Usage = Usage()
    libraries: dict[str, str] = {}
    started_s: float = 0.0
    ended_s: float = 0.0
    log: str = ""
    token: str = ""


class AttemptProgress(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The progress of an assigned attempt.

    Attributes:
        phase: ``fetching``, ``loading``, ``queued``, ``running`` or ``storing``.
        units: work done so far in the contract's unit (to split cost, and for tokens/s).
        done: and ``total`` in ``unit`` for progress bars; total 0 is unknown.
        token: the attempt's, as it was assigned; only in a :class:`Hello`.
    """

    attempt_id: str
    phase: str
    units: int = 0
    done: float = 0.0
    total: float = 0.0
    unit: str = ""
    token: str = ""


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A checkpoint that an attempt stored, or one that it could not begin at.

    Attributes:
        digest: of its tree, all of which is stored.
        done: how far the work was, on the scale of the attempt's progress.
        spoiled: blobs of it that are missing or damaged, so that it can no longer be used.
        token: the attempt's, as it was assigned.
    """

    attempt_id: str
    digest: Digest
    done: float = 0.0
    size_bytes: int = 0
    spoiled: tuple[Digest, ...] = ()
    token: str = ""


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """A line that an attempt's host printed."""

    attempt_id: str
    time_s: float
    text: str


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A worker's full state.

    Attributes:
        epoch: the highest epoch that it has seen.
        incarnation: unique per process start, so that a restarted worker of the same name is new.
        started_s: when the process started, by the worker's clock.
        age_s: how long ago that was, independent of its clock; its lifetime is billed from there. 0
            from an older worker.
        attempts: the progress of every assigned attempt.
        ended: ends that have not been acknowledged.
        checkpoints: the newest of every attempt among those.
        code_tenant: whose user code a single-tenant worker has run; empty before the first.
        replicas: every replica of a service that it was given; unset where it can hold none,
            because it has no hub.
        store_problem: why it cannot reach the store, without which it can do no work; unset where
            it can.
    """

    version: int
    epoch: int
    incarnation: str
    started_s: float
    shape: WorkerShape
    attempts: tuple[AttemptProgress, ...] = ()
    ended: tuple[AttemptEnd, ...] = ()
    instances: tuple[EngineInstanceState, ...] = ()
    components: tuple[Component, ...] = ()
    draining: bool = False
    checkpoints: tuple[Checkpoint, ...] = ()
    age_s: float = 0.0
    code_tenant: str = ""
    replicas: tuple[ServingReplicaState, ...] | msgspec.UnsetType = msgspec.UNSET
    store_problem: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def serves(self) -> bool:
        """Whether the worker can hold replicas of services."""
        return self.replicas is not msgspec.UNSET


class Sync(msgspec.Struct, frozen=True, tag="sync", omit_defaults=True):
    """What has changed at the worker since its last message; also the heartbeat.

    Attributes:
        progress: attempts whose progress changed.
        ended: attempts that ended (repeated until acknowledged, but not in every message).
        instances: all engine instances, where any changed; None where none did.
        components: all components, where any changed; None where none did.
        metrics: counters and gauges by name, for the control plane's ``/metrics``.
        checkpoints: those stored since; they are older than the ends in the same message.
        goodbye: the worker leaves now and has nothing any more.
        replicas: all replicas of services, where any changed; None where none did.
        store_problem: as in :class:`Hello`, in every message; empty where it can reach the store.
    """

    seq: int
    progress: tuple[AttemptProgress, ...] = ()
    ended: tuple[AttemptEnd, ...] = ()
    instances: tuple[EngineInstanceState, ...] | None = None
    components: tuple[Component, ...] | None = None
    logs: tuple[LogLine, ...] = ()
    metrics: dict[str, float] = {}
    draining: bool = False
    goodbye: bool = False
    checkpoints: tuple[Checkpoint, ...] = ()
    replicas: tuple[ServingReplicaState, ...] | None = None
    store_problem: str = ""


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The worker is known; it synchronises from now on."""

    version: int
    epoch: int
    sync_interval_s: float


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The worker may not join: wrong token, version, name, or a lower epoch than it has seen.

    Attributes:
        final: whether connecting again is pointless.
    """

    reason: str
    final: bool


class Desired(msgspec.Struct, frozen=True, tag="desired", omit_defaults=True):
    """Changes to the worker's desired state.

    Attributes:
        assign: attempts to start.
        cancel: attempts to stop; they end with kind ``cancelled``.
        acknowledged: ends that are published or refused, whose reports may be dropped.
        full_state: after a (re)connection; then attempts in ``keep`` go on, and the worker stops
            all others that it has.
        keep: see ``full_state``.
        drain: take nothing new, end or yield what runs, and leave.
        prewarm: all hosts to prewarm, the most urgent first; None leaves the plan unchanged.
            Attempts go first, and a host that leaves the list stays open until its memory is
            needed.
        forget: identities of components, and digests of blobs, that were revoked: the worker
            deletes them from its disk and closes the hosts that have loaded one.
        replicas: all replicas of services to hold, in the order of loading; None leaves them
            unchanged. They are fetched, loaded and kept, and not closed for attempts; one that
            leaves the list becomes an ordinary engine instance.
        routers: all routers that the hub connects to; None leaves them unchanged.
    """

    epoch: int
    seq: int
    assign: tuple[Assignment, ...] = ()
    cancel: tuple[str, ...] = ()
    acknowledged: tuple[str, ...] = ()
    full_state: bool = False
    keep: tuple[str, ...] = ()
    drain: bool = False
    prewarm: tuple[PrewarmSpec, ...] | None = None
    forget: tuple[Digest, ...] = ()
    replicas: tuple[ServingReplica, ...] | None = None
    routers: tuple[RouterAddress, ...] | None = None


WorkerMessage = Hello | Sync
ControlMessage = Welcome | Refused | Desired

_encoder = msgspec.msgpack.Encoder()
_worker_decoder = msgspec.msgpack.Decoder(WorkerMessage)
_control_decoder = msgspec.msgpack.Decoder(ControlMessage)


def encode(message: WorkerMessage | ControlMessage) -> bytes:
    """Returns the wire form of a message."""
    return _encoder.encode(message)


def decode_worker(data: bytes) -> WorkerMessage:
    """Reads a message from a worker.

    Raises:
        msgspec.DecodeError: the bytes are not such a message.
    """
    message: WorkerMessage = decode(_worker_decoder, data)
    return message


def decode_control(data: bytes) -> ControlMessage:
    """Reads a message from the control plane.

    Raises:
        msgspec.DecodeError: the bytes are not such a message.
    """
    message: ControlMessage = decode(_control_decoder, data)
    return message
