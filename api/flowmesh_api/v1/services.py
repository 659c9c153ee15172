"""Services: models that stay loaded and answer requests."""

from typing import Any

import msgspec


class ServiceApplication(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of ``POST /v1/services``: create a service, or give it another content.

    Attributes:
        document: the service as JSON-like values.
        namespace: overrides the document's; empty for no override.
        uploads: references to the stored content of local inputs, by the input's name.
    """

    document: dict[str, Any]
    namespace: str = ""
    uploads: dict[str, str] = {}


class ServiceReplicas(msgspec.Struct, frozen=True, omit_defaults=True):
    """The replicas of a component.

    Attributes:
        ready: those that take calls; ``wanted`` how many there should be.
        workers: that hold one.
        reason: why some are missing or not ready; empty where none is.
        placed: by replica id, the worker on which it is placed: what a router believes a hub about.
        code_failures: how often in a row the user's code, model or adapter could not be used by one
            of them.
    """

    component: str
    ready: int
    wanted: int
    workers: tuple[str, ...] = ()
    reason: str = ""
    placed: dict[str, str] = {}
    code_failures: int = 0


class ServiceCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition, as of a Kubernetes object; ``status`` is True, False or Unknown."""

    type: str
    status: str
    reason: str
    message: str = ""


class ServiceRequests(msgspec.Struct, frozen=True, omit_defaults=True):
    """The requests of a service in the last five minutes, as its routers count them.

    Attributes:
        rate_per_s: that came in the last minute.
        came: all; ``refused`` those that were not taken.
        ended: those that were answered or failed, and those given up after the latency target.
        missed: of those, the ones that took longer than the latency target.
        p50_s: the median latency of answers; ``p99_s`` the 99th percentile; exact to a fifth.
        latency_s: the latency target; 0 for none, and before ``scale`` can be one.
        miss_rate: the share of requests that may miss a target.
        ttft_s: the target of the time to the first event of streamed answers; 0 for none.
        streamed: those whose answer has begun as a stream; ``missed_ttft`` of those, the late ones.
        tpot_s: the target of the time of their further tokens; 0 for none.
        token_timed: streams that have ended with at least two tokens; ``missed_tpot`` of those,
            the ones above the target.
        scale: how many times a request alone the latency target is; 0 where it is a time.
        p95_s: the 95th percentile of latency.
        in_flight: requests that had not ended when the routers reported last.
    """

    rate_per_s: float = 0.0
    came: int = 0
    refused: int = 0
    ended: int = 0
    missed: int = 0
    p50_s: float = 0.0
    p99_s: float = 0.0
    latency_s: float = 0.0
    miss_rate: float = 0.0
    ttft_s: float = 0.0
    streamed: int = 0
    missed_ttft: int = 0
    tpot_s: float = 0.0
    token_timed: int = 0
    missed_tpot: int = 0
    scale: float = 0.0
    p95_s: float = 0.0
    in_flight: int = 0


class ServiceStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A service.

    Attributes:
        model: its name in OpenAI's API; of a service with stages, which has none, its own name.
        phase: ``Pending`` before its models are imported, ``Loading`` before a replica is ready,
            ``Degraded`` where some are, ``Ready``, or ``Failed`` where its models cannot be
            imported.
        generation: raised when its content changes.
        release: the set of digests that its replicas load; empty before there is one.
        paid_nanousd: what its replicas have cost.
        requests: those of the last minutes.
        stages: their names, in order; none of a service of one engine.
        best_per_s: the requests a second at which its busiest part is just always busy, to two
            digits; 0 before enough is measured.
        nanousd_per_hour: what its replicas cost at the rate of the last minutes; 0 before it is
            known.
    """

    name: str
    namespace: str
    model: str
    phase: str
    generation: int
    created_s: float
    release: str = ""
    replicas: tuple[ServiceReplicas, ...] = ()
    conditions: tuple[ServiceCondition, ...] = ()
    paid_nanousd: int = 0
    requests: ServiceRequests = ServiceRequests()
    stages: tuple[str, ...] = ()
    best_per_s: float = 0.0
    nanousd_per_hour: int = 0


class ReplicaPlacement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision about one replica.

    Attributes:
        verdict: ``stays``, ``placed``, ``moved`` or ``missing``.
        reason: why.
        worker: that holds it; empty where it is missing, and then so is ``replica``.
    """

    verdict: str
    reason: str
    worker: str = ""
    replica: str = ""


class ComponentReasons(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a component has its replicas.

    Attributes:
        wanted: how many there should be, between ``least`` and ``most``.
        reason: why so many.
        replicas: each, and each that is missing.
    """

    component: str
    wanted: int
    least: int
    most: int
    reason: str = ""
    replicas: tuple[ReplicaPlacement, ...] = ()


class ServiceReasons(msgspec.Struct, frozen=True, omit_defaults=True):
    """The response to ``GET /v1/services/{name}/why``."""

    name: str
    namespace: str
    components: tuple[ComponentReasons, ...] = ()


class CapacityPoint(msgspec.Struct, frozen=True):
    """What is predicted of a service at one load.

    Attributes:
        rate_per_s: requests a second.
        p50_s: the median latency; ``p99_s`` the 99th percentile.
        miss_rate: the share of requests later than the latency target.
    """

    rate_per_s: float
    p50_s: float
    p99_s: float
    miss_rate: float


class StageTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stage of the slowest path of a service.

    Attributes:
        alone_s: the measured time of a request alone; 0 before it is measured.
        replicas: of its component, those that are ready and measured.
        at_once: calls that one replica of an engine ran at once while it was measured: more count
            as waiting; 0 where sizes of batches or calls were measured.
    """

    stage: str
    component: str
    alone_s: float = 0.0
    replicas: int = 0
    at_once: int = 0


class ServiceCapacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The response to ``GET /v1/services/{name}/capacity``: its capacity curve.

    Attributes:
        points: by load, ascending; none where ``reason`` says what is missing.
        stages: of the slowest path, which the points are for.
        requests: what is measured.
        best_per_s: the requests a second at which its busiest part is just always busy; 0 where it
            is not known.
    """

    name: str
    namespace: str
    points: tuple[CapacityPoint, ...] = ()
    stages: tuple[StageTime, ...] = ()
    requests: ServiceRequests = ServiceRequests()
    best_per_s: float = 0.0
    reason: str = ""


class ServiceList(msgspec.Struct, frozen=True):
    """The response to ``GET /v1/services``: services of one namespace or of all, by name."""

    services: tuple[ServiceStatus, ...]


class ServiceTokenRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of ``POST /v1/services/{name}/tokens``.

    Attributes:
        valid_s: seconds until the token expires; 0 for never.
    """

    valid_s: float = 0.0


class ServiceTokenCreated(msgspec.Struct, frozen=True, omit_defaults=True):
    """A new token of a service, which is shown this once.

    Attributes:
        id: names it in the list, and to revoke it.
        token: the key for OpenAI's clients.
        expires_s: Unix time; 0 for never.
    """

    id: str
    token: str
    expires_s: float = 0.0


class ServiceTokenShown(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token of a service, without what it is.

    Attributes:
        created_s: Unix time.
        expires_s: Unix time; 0 for never.
    """

    id: str
    created_s: float
    expires_s: float = 0.0


class ServiceTokenList(msgspec.Struct, frozen=True):
    """The response to ``GET /v1/services/{name}/tokens``, the oldest first."""

    tokens: tuple[ServiceTokenShown, ...]


class ServiceTokenRevoked(msgspec.Struct, frozen=True):
    """The response to ``DELETE /v1/services/{name}/tokens/{id}``."""


class ServiceDeleted(msgspec.Struct, frozen=True):
    """The response to ``DELETE /v1/services/{name}``."""


class RouterReportTaken(msgspec.Struct, frozen=True, omit_defaults=True):
    """The response to ``POST /v1/router``.

    Attributes:
        ignored: parts of the report that do not count, such as those of a service that is deleted.
    """

    ignored: int = 0
