"""The frames of a request to a service: between routers, hubs and engine hosts.

A hub connects to every router and to the engine hosts of its worker's replicas. A call goes router,
hub, host; its pieces and its end come back the same way::

    hub -> router    HubHello, LinkRenewed, ReplicaLoads, Piece, CallEnded, CallRefused, Pong,
                     StageValue, StageFailed, StageReport
    router -> hub    RouterWelcome, RouterRefused, ServiceCall, Credit, Abort, Ping,
                     UseGraph, RunStages, StageValue, EndRequest, AskStages
    hub -> host      ServiceCall, Credit, Abort, ComponentCall, ForgetValues, TokenTargets
    host -> hub      CallHostHello, Piece, CallEnded, CallRefused, ComponentProfiles,
                     CallsWithinTargets
    hub -> hub       PeerHello, PeerValue; back PeerWelcome, PeerRefused

A request to a service with stages has a route, which its router sends to each hub in it. A hub
begins a stage once its join is complete, and sends the stage's value to the next hub: directly
where the router has named it as a peer, else through the router. Values for the reply go to the
router.

Time in a frame is what remains of a call's budget, in milliseconds: clocks are not compared. Every
frame may arrive twice: what is not known any more is ignored. Structures are arrays, fields are
added at the end, and unknown ones are ignored, so the version only rises with a frame's meaning.

A stream has credit: bytes that the engine host may send before the router's client has read them.
A client that does not read stops its own stream, not the engine.
"""

import msgspec

from flowmesh_core.stages.route import RequestRoute
from flowmesh_core.stages.service_graph import ServiceGraph
from flowmesh_core.stages.stage_timing import UNTIMED, StageTiming

SERVING_VERSION = 1
FRAME_BYTES_MAX = 64 << 20
"""The largest frame between a hub and a router."""
HELLO_BYTES_MAX = 256 << 10
"""The largest frame of a hub that a router has not welcomed."""
CREDIT_BYTES = 64 << 10
"""Bytes of one stream between its engine host and its client."""

GRAPHS_MAX = 256
"""Graphs of one connection that a hub keeps; both ends forget the one that was sent first."""
VALUE_BYTES_MAX = 8 << 20
"""The largest value of a stage that passes a router."""
PACKED_ARRAYS = b"\xc1"
"""The first byte of packed arrays; JSON never begins with it."""

OK = "ok"
FAILED = "failed"
"""The engine refused the call or failed on it; the body is OpenAI's error object."""
DEADLINE = "deadline"
LOST = "lost"
"""The replica's host or hub ended; nothing is known of the call."""
FULL = "full"
UNKNOWN_REPLICA = "unknown-replica"

STAGE_QUEUED, STAGE_RUNNING, STAGE_ENDED = "queued", "running", "ended"


class ReplicaLoad(msgspec.Struct, frozen=True, array_like=True):
    """A replica that takes calls, and what it does.

    Attributes:
        replica_id: unique in an installation.
        service: ``namespace/name``.
        paths: those of OpenAI's API that its engine answers, such as ``/v1/completions``.
        calls_max: calls that run at once.
        running: calls that run, of all routers.
        queued: calls that wait for one of those to end.
        component: of the service.
        sizes: batch sizes that were measured, ascending; empty where the hub does not know. Of an
            engine that generates no tokens, numbers of calls that ran at once.
        seconds: of a batch, or of a call of such an engine, for each of them.
        cap: the largest batch that is formed, or calls of such an engine that run at once; 0 for an
            engine that generates tokens, or is not measured yet.
        adapters: names of the adapters that its engine has loaded.
        call_lengths: of a component that iterates, whose calls begin while others run: the steps of
            its calls beside their mean, ascending, each of as many calls. ``seconds`` then are of a
            whole call, by the number that run.
    """

    replica_id: str
    service: str
    paths: tuple[str, ...]
    calls_max: int
    running: int = 0
    queued: int = 0
    component: str = ""
    sizes: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    cap: int = 0
    adapters: tuple[str, ...] = ()
    call_lengths: tuple[float, ...] = ()


class CallTimes(msgspec.Struct, array_like=True):
    """What the calls of a replica have taken that have ended, in sums.

    Attributes:
        calls: how many.
        queue_s: seconds from their arrival at the worker until they began.
        compute_s: seconds from there to their end.
        batches: in which they ran; an engine that batches by itself has one for each call.
        batched: calls of those batches; of such an engine, those that ran as each call began.
    """

    calls: int = 0
    queue_s: float = 0.0
    compute_s: float = 0.0
    batches: int = 0
    batched: int = 0

    def add(self, other: "CallTimes") -> None:
        """Adds those of other calls."""
        self.calls += other.calls
        self.queue_s += other.queue_s
        self.compute_s += other.compute_s
        self.batches += other.batches
        self.batched += other.batched

    def take(self) -> "CallTimes":
        """Returns the sums, which begin anew."""
        taken = CallTimes(self.calls, self.queue_s, self.compute_s, self.batches, self.batched)
        self.calls = self.batches = self.batched = 0
        self.queue_s = self.compute_s = 0.0
        return taken

    def since(self, before: "CallTimes") -> "CallTimes":
        """Returns what was added since an earlier state of the same sums."""
        return CallTimes(
            self.calls - before.calls,
            self.queue_s - before.queue_s,
            self.compute_s - before.compute_s,
            self.batches - before.batches,
            self.batched - before.batched,
        )


class HubHello(msgspec.Struct, frozen=True, array_like=True, tag="hub-hello"):
    """A hub's first frame.

    Attributes:
        worker: the worker's name.
        incarnation: unique per process of a hub.
        replicas: all that take calls.
        peer: name of the socket where it takes values of other hubs, in the folder ``peers`` beside
            the router's own, or ``tls:`` and a port; empty where it takes none.
        reports_stages: whether it answers ``AskStages``; hubs of older releases do not.
    """

    version: int
    worker: str
    incarnation: str
    replicas: tuple[ReplicaLoad, ...]
    peer: str = ""
    reports_stages: bool = False


class LinkRenewed(msgspec.Struct, frozen=True, array_like=True, tag="link-renewed"):
    """The hub has another link certificate (PEM), which replaces that of its connection."""

    certificate: str


class RouterWelcome(msgspec.Struct, frozen=True, array_like=True, tag="router-welcome"):
    """The router sends calls from now on."""

    version: int


class RouterRefused(msgspec.Struct, frozen=True, array_like=True, tag="router-refused"):
    """The router takes nothing from this hub, and closes the connection."""

    reason: str


class ReplicaLoads(msgspec.Struct, frozen=True, array_like=True, tag="loads"):
    """All replicas that take calls, where any changed.

    Attributes:
        passed_bytes: bytes of values that stages of this router's requests have passed on since the
            last report, by tier: ``reference`` counts values, of which no byte moved.
        dropped_values: values that joins of this hub have dropped since the last report, by reason;
            one router gets them.
        times: of the calls that have ended since the last report, by replica; one router gets them.
    """

    replicas: tuple[ReplicaLoad, ...]
    passed_bytes: dict[str, int] = {}
    dropped_values: dict[str, int] = {}
    times: dict[str, CallTimes] = {}


class CallHostHello(msgspec.Struct, frozen=True, array_like=True, tag="host-hello"):
    """An engine host's first frame.

    Attributes:
        paths: those of OpenAI's API that its engine answers; none if it answers no calls.
        calls_max: calls that run at once.
        adapters: names of the adapters that its engine has loaded.
    """

    paths: tuple[str, ...]
    calls_max: int
    adapters: tuple[str, ...] = ()


class CallsWithinTargets(msgspec.Struct, frozen=True, array_like=True, tag="calls-within"):
    """How many calls the engine runs at once for its token targets, at most ``calls_max``."""

    calls: int


class TokenTargets(msgspec.Struct, frozen=True, array_like=True, tag="token-targets"):
    """What the engine of a host keeps from now on.

    Attributes:
        ttft_s: the time to the first token; 0 for no target.
        tpot_s: the time of each further token; 0 for no target.
    """

    ttft_s: float = 0.0
    tpot_s: float = 0.0


class ServiceCall(msgspec.Struct, frozen=True, array_like=True, tag="call"):
    """One request for a replica.

    Attributes:
        call_id: unique among all routers.
        replica_id: which answers; empty between hub and host, whose instance serves several.
        path: such as ``/v1/chat/completions``.
        model: the model's name in the answer.
        body: OpenAI's request as JSON, which the router has checked.
        stream: whether pieces are wanted as the engine makes them.
        budget_ms: what remains until the deadline.
        tenant: the caller's namespace.
        seed: used where the body has none.
        cache_salt: separates prefix caches; set by the hub.
        priority: from a router, that of the request among those of its tenant at its service
            (``RequestPriority``); to a host, one above every attempt, the same for all calls.
        tool_parser: vLLM's parser of the model's tool calls; empty for none.
        adapter: name of the adapter that answers; empty for the model alone.
    """

    call_id: str
    replica_id: str
    path: str
    model: str
    body: bytes
    stream: bool
    budget_ms: int
    tenant: str
    seed: int
    cache_salt: str = ""
    priority: int = 0
    tool_parser: str = ""
    adapter: str = ""


class Credit(msgspec.Struct, frozen=True, array_like=True, tag="credit"):
    """More bytes of a stream may be sent, as its client has read some."""

    call_id: str
    size: int


class Abort(msgspec.Struct, frozen=True, array_like=True, tag="abort"):
    """The result of a call is not wanted any more; its end is not reported."""

    call_id: str


class Piece(msgspec.Struct, frozen=True, array_like=True, tag="piece"):
    """The next bytes of a stream.

    Attributes:
        version: of the route by which a request to a service with stages streams; 0 for a call, and
            from hubs that do not say it.
    """

    call_id: str
    data: bytes
    version: int = 0


class CallEnded(msgspec.Struct, frozen=True, array_like=True, tag="call-ended"):
    """A call has ended.

    Attributes:
        outcome: ``OK``, ``FAILED``, ``DEADLINE`` or ``LOST``.
        status: of the HTTP response.
        body: the answer, or OpenAI's error object; empty after a stream.
        tokens_in: tokens of the prompt.
        tokens_out: generated tokens.
        value: of a component's call that wanted one; empty where ``body`` is the value.
        step: which call of a chain ended it, from 0; see ``ComponentCall.then``.
        times: seconds that it waited and ran at its worker, of each call of a chain up to that one;
            none where it was not measured.
    """

    call_id: str
    outcome: str
    status: int = 200
    body: bytes = b""
    tokens_in: int = 0
    tokens_out: int = 0
    value: "PassedValue | None" = None
    step: int = 0
    times: tuple[tuple[float, float], ...] = ()


class CallRefused(msgspec.Struct, frozen=True, array_like=True, tag="call-refused"):
    """The hub does not take a call: the replica is ``FULL`` or an ``UNKNOWN_REPLICA``.

    A host sends ``FULL`` where the first token of a call would come too late.
    """

    call_id: str
    reason: str


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    """The router asks, twice a second, whether the hub is there; each frame of it says so."""


class Pong(msgspec.Struct, frozen=True, array_like=True, tag="pong"):
    """The hub is there."""


class UseGraph(msgspec.Struct, frozen=True, array_like=True, tag="graph"):
    """The stages of a service; requests name them by their digest.

    They are sent once, and again after ``GRAPHS_MAX`` others.
    """

    graph: ServiceGraph


class PeerAddress(msgspec.Struct, frozen=True, array_like=True):
    """Another hub of a request's route, to which values go without the router.

    Attributes:
        socket: its name in the folder ``peers``, or ``tls:HOST:PORT`` on another machine.
        key: that only the router and the two hubs know.
    """

    socket: str
    key: str


class RunStages(msgspec.Struct, frozen=True, array_like=True, tag="stages"):
    """Run the stages of a request that the route gives to this hub.

    Attributes:
        request_id: unique among all routers; a stream's pieces have it as their call.
        graph: digest of a graph that was sent before.
        request: the client's request, a JSON object.
        budget_ms: what remains until the request's timeout.
        slo_ms: what remains until its reply is late; 0 where the service has no latency target.
        tenant: the caller's namespace.
        seed: used where a stage has none.
        stream: whether the answer of the stage that streams is wanted as it is made.
        peers: the hubs of the route's other workers, by worker; the router relays values to those
            that it does not name.
        timed: whether the router will ask what its stages took.
    """

    request_id: str
    graph: str
    route: RequestRoute
    request: bytes
    budget_ms: int
    slo_ms: int
    tenant: str
    seed: int
    stream: bool = False
    peers: dict[str, PeerAddress] = {}
    timed: bool = False


class StageValue(msgspec.Struct, frozen=True, array_like=True, tag="value"):
    """The value of one stage for another, or for the reply.

    Attributes:
        stage: that needs it; ``reply`` for the router itself.
        source: the stage that made it.
        data: JSON, or packed arrays for a Python component; empty for the answer that was streamed.
    """

    request_id: str
    version: int
    stage: str
    source: str
    data: bytes


class StageFailed(msgspec.Struct, frozen=True, array_like=True, tag="stage-failed"):
    """A stage has no value, so the request has no reply by this route.

    Attributes:
        replica_id: that failed, refused or lost it.
        outcome: as of a call; ``FULL`` and ``UNKNOWN_REPLICA`` where it was not begun.
        body: an error object in OpenAI's shape.
    """

    request_id: str
    version: int
    stage: str
    replica_id: str
    outcome: str
    status: int = 500
    body: bytes = b""


class EndRequest(msgspec.Struct, frozen=True, array_like=True, tag="end-request"):
    """A request has ended, or is not wanted: its stages are aborted and its values freed."""

    request_id: str


class AskStages(msgspec.Struct, frozen=True, array_like=True, tag="ask-stages"):
    """How far is a request, or a call, at this hub?

    Attributes:
        number: of the question; the answer has it, too.
    """

    number: int
    request_id: str


class StageProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a stage of a request is.

    Attributes:
        stage: its name; empty for a call to a service without stages.
        state: ``STAGE_QUEUED``, ``STAGE_RUNNING`` or ``STAGE_ENDED``. Stages that one host runs
            after each other are in one state until the last has ended.
        age_s: seconds since its call came to the worker.
        queue_s: seconds that it waited there; 0 before its end, and where they were not measured.
        compute_s: seconds that it ran, likewise.
    """

    stage: str
    state: str
    age_s: float = 0.0
    queue_s: float = 0.0
    compute_s: float = 0.0


class StageReport(msgspec.Struct, frozen=True, array_like=True, tag="stage-report"):
    """The answer to ``AskStages``.

    Attributes:
        number: of the question.
        stages: that have begun at this hub; none where it does not have the request.
    """

    number: int
    stages: tuple[StageProgress, ...]


class StoredInput(msgspec.Struct, frozen=True, array_like=True):
    """An input that is in the host already.

    Attributes:
        key: under which the host keeps it.
        path: of the part that is wanted.
    """

    key: str
    path: tuple[str, ...] = ()


class PassedValue(msgspec.Struct, frozen=True, array_like=True):
    """A value that a Python component has made for one in another host.

    Attributes:
        data: JSON, or arrays as the component host packs them; empty where a descriptor was passed
            beside the connection.
        number: of that descriptor; 0 for none.
        path: of the part that is wanted.
    """

    data: bytes = b""
    number: int = 0
    path: tuple[str, ...] = ()


class ComponentCall(msgspec.Struct, frozen=True, array_like=True, tag="component-call"):
    """One call of a Python component.

    Attributes:
        call_id: unique in the host.
        component: of the service.
        body: a JSON object of inputs.
        stored: further inputs, by name.
        store_as: under which key the host keeps the result; empty where it need not.
        wants_body: whether the answer has the result as JSON.
        budget_ms: what remains until the request's timeout.
        slo_ms: what remains until its reply is late; 0 for no target.
        tenant: the caller's namespace.
        passed: further inputs, by name, that components of other hosts have made.
        wants_value: whether a component of another host needs the result.
        then: calls that the host runs after this one, each with the value of the one before. The
            chain has this call's id, and ends with its last call or the first that fails.
        timing: what it may take.
        timed: whether its end says what it took.
    """

    call_id: str
    component: str
    body: bytes
    stored: dict[str, StoredInput]
    store_as: str
    wants_body: bool
    budget_ms: int
    slo_ms: int
    tenant: str = ""
    passed: dict[str, PassedValue] = {}
    wants_value: bool = False
    then: "tuple[ComponentCall, ...]" = ()
    timing: StageTiming = UNTIMED
    timed: bool = False


class ForgetValues(msgspec.Struct, frozen=True, array_like=True, tag="forget"):
    """Results that the host need not keep any more."""

    keys: tuple[str, ...]


class ComponentProfile(msgspec.Struct, frozen=True, array_like=True):
    """What a host has measured of a component; fields as of ``ReplicaLoad``.

    Attributes:
        times: of all its calls since the host began.
    """

    component: str
    queued: int
    cap: int
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    times: CallTimes = msgspec.field(default_factory=CallTimes)
    call_lengths: tuple[float, ...] = ()


class ComponentProfiles(msgspec.Struct, frozen=True, array_like=True, tag="profiles"):
    """All components of a host, where any profile changed."""

    profiles: tuple[ComponentProfile, ...]


class PeerHello(msgspec.Struct, frozen=True, array_like=True, tag="peer-hello"):
    """The first frame of a hub that sends values to another.

    Attributes:
        worker: the sender's name.
        key: from ``PeerAddress``.
    """

    version: int
    worker: str
    key: str


class PeerValue(msgspec.Struct, frozen=True, array_like=True, tag="peer-value"):
    """The value of one stage for a stage of the receiving hub.

    Attributes:
        stage: that needs it.
        source: the stage that made it.
        checksum: CRC-32 of the data where it has 64 KiB or more; 0 for a descriptor, whose bytes
            are not copied.
    """

    request_id: str
    version: int
    stage: str
    source: str
    value: PassedValue
    checksum: int = 0


class PeerRefused(msgspec.Struct, frozen=True, array_like=True, tag="peer-refused"):
    """A value is damaged or of a request that the hub does not have: route it again."""

    request_id: str
    version: int


class PeerWelcome(msgspec.Struct, frozen=True, array_like=True, tag="peer-welcome"):
    """A hub of another machine takes values over this link."""


ToRouter = (
    HubHello
    | LinkRenewed
    | ReplicaLoads
    | Piece
    | CallEnded
    | CallRefused
    | Pong
    | StageValue
    | StageFailed
    | StageReport
)
FromRouter = (
    RouterWelcome
    | RouterRefused
    | ServiceCall
    | Credit
    | Abort
    | Ping
    | UseGraph
    | RunStages
    | StageValue
    | EndRequest
    | AskStages
)
ToCallHost = ServiceCall | Credit | Abort | ComponentCall | ForgetValues | TokenTargets
ToPeer = PeerHello | PeerValue
FromPeer = PeerRefused | PeerWelcome
FromCallHost = (
    CallHostHello | Piece | CallEnded | CallRefused | ComponentProfiles | CallsWithinTargets
)
