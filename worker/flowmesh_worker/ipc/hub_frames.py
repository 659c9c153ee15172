"""The messages between the worker agent and its hub; both come from the same installation."""

import msgspec

from flowmesh_core.stages.stage_timing import StageTiming


class RouterTls(msgspec.Struct, frozen=True, array_like=True):
    """How routers at a ``tls:`` address and the hub verify each other.

    Attributes:
        ca: certificates (PEM) that the routers' are verified with.
        certificate: the hub's link certificate (PEM).
        key: its private key (PEM).
        authorities: certificates (PEM) that those of other hubs are verified with.
        group: the routers that serve the same services.
    """

    ca: str
    certificate: str
    key: str
    authorities: str = ""
    group: str = ""


class UseRouters(msgspec.Struct, frozen=True, array_like=True, tag="routers"):
    """Stay connected to exactly these routers.

    Attributes:
        addresses: ``unix:`` and the path of a socket, or ``tls:host:port`` of one or more routers.
        tls: of each ``tls:`` address.
        peer_port: where the hub takes values of hubs of other machines; 0 for nowhere.
    """

    addresses: tuple[str, ...]
    tls: dict[str, RouterTls] = {}
    peer_port: int = 0


class AdmitReplica(msgspec.Struct, frozen=True, array_like=True, tag="admit"):
    """Pass the calls of this replica to an engine host.

    Attributes:
        replica_id: unique in an installation.
        service: ``namespace/name``.
        socket: where its host listens; replicas of one engine instance have one socket.
        calls_max: calls that it takes at once; 0 is what the engine can.
        salts: by namespace of a caller, what separates its prefix cache.
        halvings: how often the calls at once are halved, since its host ran out of memory.
        component: of the service.
        timings: by stage that calls it, what a call may take.
        ttft_s: see ``TokenTargets``; so is ``tpot_s``.
    """

    replica_id: str
    service: str
    socket: str
    calls_max: int = 0
    salts: dict[str, str] = {}
    halvings: int = 0
    component: str = ""
    timings: dict[str, StageTiming] = {}
    ttft_s: float = 0.0
    tpot_s: float = 0.0


class WithdrawReplica(msgspec.Struct, frozen=True, array_like=True, tag="withdraw"):
    """Take no further calls of a replica; those that it has go on."""

    replica_id: str


class CloseHub(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """Disconnect and exit."""


class HubStarted(msgspec.Struct, frozen=True, array_like=True, tag="started"):
    """The hub takes messages."""


class ReplicaUsage(msgspec.Struct, frozen=True, array_like=True, tag="usage"):
    """What the calls of a replica use.

    Attributes:
        calls: calls in it now, waiting or running.
        tokens: prompt and generated tokens of all calls that have ended.
        call_s: seconds that these took, from when they ran.
    """

    replica_id: str
    calls: int
    tokens: int
    call_s: float = 0.0


ToHub = UseRouters | AdmitReplica | WithdrawReplica | CloseHub
FromHub = HubStarted | ReplicaUsage
