"""Settings of the control plane around the run machine; made by the CLI and the operator."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowmesh_control.collection_settings import CollectionSettings
from flowmesh_core.graph.limits import Limits
from flowmesh_core.machine.settings import Settings

HANG_S = 20.0
"""How long the event loop of a process that serves users may make no turn."""
OPENAI_ENGINE = "llm.openai"
CONNECTIONS_PER_PEER = 64
CONNECTIONS_MAX = 1024
REQUEST_LOG_TTL_S = 400 * 86400.0


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Settings that do not change while a control plane runs.

    Attributes:
        machine: settings of the run machine.
        limits: bounds on one workflow, checked at admission.
        sync_interval_s: how often workers synchronise.
        flush_s: how often ledgers are flushed.
        lead_check_s: how often the control plane checks that no other one leads.
        model_save_s: how often the cost model is saved.
        upload_bytes_max: the largest upload of a directory.
        objects: runs and policies are objects of a cluster; the API then accepts none, and changes
            runs only by cancelling or re-pinning them.
        hang_s: the process ends when its event loop makes no turn for this long; 0 for never.
        sandboxed_evaluators: conditions are evaluated and workflows compiled in child processes;
            False where all runs have one owner, who would only harm himself.
        metrics_open: ``/metrics`` needs no token; for a network that only Prometheus can reach.
        connections_per_peer: the most connections of one peer that have shown no valid token;
            ``connections_max`` is that of all peers.
        request_log: whether requests are logged.
        model_aliases: names of models for OpenAI's API, each with a built-in name or an address.
        openai_engine: the engine that answers requests of OpenAI's API.
        request_log_ttl_s: the age from which a collection deletes segments of the request log.
        collection: when collections happen, and what they leave.
        routers: addresses of the routers of services, as workers' hubs reach them.
        router_ca: certificates (PEM) with which hubs verify routers at ``tls:`` addresses.
        router_url: the base URL of the routers for clients; empty where routers do not take the
            tokens that the control plane creates.
    """

    machine: Settings = field(default_factory=Settings)
    limits: Limits = field(default_factory=Limits)
    sync_interval_s: float = 1.0
    flush_s: float = 1.0
    lead_check_s: float = 5.0
    model_save_s: float = 30.0
    upload_bytes_max: int = 64 << 30
    objects: bool = False
    hang_s: float = 0.0
    metrics_open: bool = False
    sandboxed_evaluators: bool = False
    connections_per_peer: int = CONNECTIONS_PER_PEER
    connections_max: int = CONNECTIONS_MAX
    model_aliases: Mapping[str, str] = field(default_factory=dict)
    openai_engine: str = OPENAI_ENGINE
    request_log: bool = True
    request_log_ttl_s: float = REQUEST_LOG_TTL_S
    collection: CollectionSettings = field(default_factory=CollectionSettings)
    routers: tuple[str, ...] = ()
    router_ca: str = ""
    router_url: str = ""
