"""The operator's settings: the only list of its environment variables.

The chart sets them; ``main`` reads them once, before anything else.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flowmesh_control.auth.master_key import decode_ring
from flowmesh_control.collection_settings import COLLECTION_INTERVAL_S
from flowmesh_control.settings import CONNECTIONS_MAX, CONNECTIONS_PER_PEER, OPENAI_ENGINE
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.spec.quantities import byte_count, not_zero
from flowmesh_operator.pod_environment import ANYWHERE, PodEnvironment
from flowmesh_store.blobs import DEFAULT_GRACE_S

_API_SERVER = "KUBERNETES_SERVICE_HOST"
"""Kubernetes sets it in every pod."""
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class SettingsError(FlowMeshError):
    """An environment variable is missing or wrong; ``where`` names it."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Settings of one process; each variable is ``FLOWMESH_`` and the name in capitals.

    Attributes:
        store: address of the bucket or directory (``open_store``); required.
        key_ring: the master keys, from the file that ``FLOWMESH_MASTER_KEY_FILE`` names; required.
        request_log: log requests in the store (``FLOWMESH_REQUEST_LOG=false`` for none).
        request_log_days: the age from which a collection deletes that log.
        collect_every_s: from one collection of the store to the next; 0 for none by itself.
        collect_grace_s: no blob younger than this is deleted; blob service and workers need it too.
        store_max: the most bytes of blobs in use, such as ``500Gi``; none if empty.
        result_days: how long results are valid where their cache policy has no ttl.
        run_days: how long the records of ended runs stay.
        loses_results: start although the store is sealed with a lost master key, and give up its
            results and runs (``FLOWMESH_LOSE_RESULTS=true``).
        namespace: the operator's own, with the Lease, the pools and its pods; by default the pod's.
        pod_name: this replica's pod, for the leader's label; without it no label is set.
        pod_selector: the label selector of all the operator's pods.
        identity: this replica's name in the Lease; the pod's or host's name by default.
        service_account: the operator's ServiceAccount, for messages that explain a missing right.
        lease_name: the Lease's name.
        lease_s: how long the Lease is valid after its last renewal.
        renew_deadline_s: a leader that has not renewed for this long stops; below ``lease_s``.
        retry_s: pause between tries to acquire or renew the Lease.
        gateway_host: the address to listen on, with ``gateway_port``, for workers and users.
        tls_cert: the gateway's certificate (PEM), with ``tls_key``; plain HTTP without.
        health_port: the port of ``/healthz``; 0 for none.
        connections_per_peer: the most connections of one peer to the gateway that have shown no
            valid token; ``connections_max`` is that of all peers.
        metrics_open: the gateway's ``/metrics`` needs no token (``FLOWMESH_METRICS_OPEN=true``);
            for use with a network policy that admits only Prometheus.
        worker_token: a fixed token with which any worker joins, where pods have no token; none if
            empty.
        state_folder: a folder that survives restarts of the container (``FLOWMESH_STATE_DIR``), so
            that a run that ends the process is found; none if empty.
        store_account_dir: where the Secret with the bucket's account is mounted, of which the
            process has the values in its environment: it ends when they have changed.
        watch_workers: how many objects the watches handle at a time.
        sync_window_s: after a takeover, how long workers may take to report what they run.
        worker_gateway: the gateway's address for pools' pods; its Service by default.
        worker_store: the store's address for them; ``store`` by default.
        worker_ca_secret: the Secret whose ``ca.crt`` they trust for the gateway; none if empty.
        worker_store_ca_secret: the Secret whose ``ca.crt`` they trust for the bucket's server; the
            system's certificates if empty.
        worker_blob_service: the blob service's address for them, where the store is a bucket; its
            Service by default.
        blob_service_port: where the blob service listens, with ``gateway_host``.
        worker_store_claim: the PersistentVolumeClaim of a store that is a directory.
        worker_store_cidrs: networks of the bucket, separated by commas; any if empty.
        worker_dns_cidrs: networks of DNS servers besides the cluster's own, separated by commas.
        router_hubs: where workers' hubs reach the routers of services, as ``tls:host:port``; empty
            for no routers.
        router_ca: the file with the certificates that hubs verify them with.
        router_url: the base URL of the routers for clients in the cluster.
        openai_engine: the engine that answers batches of OpenAI's API, such as one of a plugin.
        keda_metrics_url: the URL where KEDA reads the gateway's metrics; empty disables KEDA.
        keda_secret: the Secret with the ``token`` that KEDA sends there; none if empty.
        keda_pair_secret: the Secret with KEDA's ``tls.crt`` and ``tls.key``, without which it does
            not check the gateway's certificate; ``keda_secret`` if empty.
    """

    store: str
    key_ring: KeyRing = field(repr=False)
    namespace: str = "default"
    pod_name: str = ""
    pod_selector: str = "app.kubernetes.io/name=flowmesh,app.kubernetes.io/component=operator"
    identity: str = ""
    service_account: str = "flowmesh-operator"
    lease_name: str = "flowmesh-operator"
    lease_s: float = 6.0
    renew_deadline_s: float = 4.0
    retry_s: float = 1.0
    gateway_host: str = "0.0.0.0"  # in a pod, behind a Service and a NetworkPolicy
    gateway_port: int = 8470
    tls_cert: str = ""
    tls_key: str = ""
    health_port: int = 0
    connections_per_peer: int = CONNECTIONS_PER_PEER
    connections_max: int = CONNECTIONS_MAX
    metrics_open: bool = False
    request_log: bool = True
    request_log_days: int = 400
    collect_every_s: float = COLLECTION_INTERVAL_S
    collect_grace_s: float = DEFAULT_GRACE_S
    store_max: int = 0
    result_days: int = 30
    run_days: int = 90
    loses_results: bool = False
    worker_token: str = field(default="", repr=False)
    state_folder: Path | None = None
    store_account_dir: Path | None = None
    watch_workers: int = 200
    sync_window_s: float = 3.0
    worker_gateway: str = ""
    worker_store: str = ""
    worker_ca_secret: str = ""
    worker_store_ca_secret: str = ""
    worker_blob_service: str = ""
    blob_service_port: int = 8472
    worker_store_claim: str = ""
    worker_store_cidrs: str = ""
    worker_dns_cidrs: str = ""
    worker_import_refuse: str = ""
    api_server_host: str = ""
    router_hubs: str = ""
    router_ca: Path | None = None
    router_url: str = ""
    openai_engine: str = OPENAI_ENGINE
    keda_metrics_url: str = ""
    keda_secret: str = ""
    keda_pair_secret: str = ""

    @property
    def pod_environment(self) -> PodEnvironment:
        """The environment of the pools' pods."""
        scheme = "wss" if self.tls_cert else "ws"
        service = f"{scheme}://flowmesh-gateway.{self.namespace}.svc:{self.gateway_port}"
        labels = (pair.partition("=") for pair in self.pod_selector.split(","))
        return PodEnvironment(
            namespace=self.namespace,
            gateway=self.worker_gateway or service,
            store=self.worker_store or self.store,
            ca_secret=self.worker_ca_secret,
            store_ca_secret=self.worker_store_ca_secret,
            blob_service=self._blob_service,
            store_claim=self.worker_store_claim,
            operator_labels={key.strip(): value.strip() for key, _, value in labels},
            router_hubs=self.router_hubs,
            dns_cidrs=_networks(self.worker_dns_cidrs),
            metrics_url=self.keda_metrics_url,
            metrics_secret=self.keda_secret,
            metrics_pair_secret=self.keda_pair_secret,
            cluster_cidrs=_networks(self.worker_import_refuse),
            api_server_host=self.api_server_host,
            store_cidrs=_networks(self.worker_store_cidrs) or ANYWHERE,
            store_grace_s=self.collect_grace_s,
        )

    @property
    def _blob_service(self) -> str:
        if not (self.worker_store or self.store).startswith("s3:"):
            return ""
        scheme = "https" if self.tls_cert else "http"
        service = f"{scheme}://flowmesh-blobs.{self.namespace}.svc:{self.blob_service_port}"
        return self.worker_blob_service or service


def read_settings(environment: Mapping[str, str], *, host: str) -> OperatorSettings:
    """Reads every variable.

    Args:
        environment: the process's environment variables.
        host: the machine's name, the default identity outside of a pod.

    Raises:
        SettingsError: names the variable, what is wrong with it, and the remedy.
    """
    reader = _Reader(environment)
    pod = reader.text("POD_NAME")
    defaults = OperatorSettings(store="", key_ring=KeyRing.of(bytes(32)))
    settings = OperatorSettings(
        store=reader.required("STORE", "set it to the bucket, such as s3://bucket/prefix"),
        key_ring=reader.keys("MASTER_KEY_FILE"),
        loses_results=reader.flag("LOSE_RESULTS"),
        namespace=reader.text("NAMESPACE") or _own_namespace() or defaults.namespace,
        pod_name=pod,
        pod_selector=reader.text("POD_SELECTOR") or defaults.pod_selector,
        identity=reader.text("IDENTITY") or pod or host,
        service_account=reader.text("SERVICE_ACCOUNT") or defaults.service_account,
        lease_name=reader.text("LEASE_NAME") or defaults.lease_name,
        lease_s=reader.seconds("LEASE_S", defaults.lease_s),
        renew_deadline_s=reader.seconds("RENEW_DEADLINE_S", defaults.renew_deadline_s),
        retry_s=reader.seconds("RETRY_S", defaults.retry_s),
        gateway_host=reader.text("GATEWAY_HOST") or defaults.gateway_host,
        gateway_port=reader.whole("GATEWAY_PORT", defaults.gateway_port),
        tls_cert=reader.text("TLS_CERT"),
        tls_key=reader.text("TLS_KEY"),
        health_port=reader.whole("HEALTH_PORT", defaults.health_port),
        connections_per_peer=reader.whole("CONNECTIONS_PER_PEER", defaults.connections_per_peer),
        connections_max=reader.whole("CONNECTIONS_MAX", defaults.connections_max),
        metrics_open=reader.flag("METRICS_OPEN"),
        request_log=reader.flag("REQUEST_LOG", default=defaults.request_log),
        request_log_days=reader.days("REQUEST_LOG_DAYS", defaults.request_log_days),
        collect_every_s=reader.seconds("COLLECT_EVERY_S", defaults.collect_every_s),
        collect_grace_s=reader.seconds("COLLECT_GRACE_S", defaults.collect_grace_s),
        store_max=reader.byte_count("STORE_MAX"),
        result_days=reader.days("RESULT_DAYS", defaults.result_days),
        run_days=reader.days("RUN_DAYS", defaults.run_days),
        worker_token=reader.text("WORKER_TOKEN"),
        state_folder=Path(folder) if (folder := reader.text("STATE_DIR")) else None,
        store_account_dir=Path(file) if (file := reader.text("STORE_ACCOUNT_DIR")) else None,
        watch_workers=reader.whole("WATCH_WORKERS", defaults.watch_workers),
        sync_window_s=reader.seconds("SYNC_WINDOW_S", defaults.sync_window_s),
        worker_gateway=reader.text("WORKER_GATEWAY"),
        worker_store=reader.text("WORKER_STORE"),
        worker_ca_secret=reader.text("WORKER_CA_SECRET"),
        worker_store_ca_secret=reader.text("WORKER_STORE_CA_SECRET"),
        worker_blob_service=reader.text("WORKER_BLOB_SERVICE"),
        blob_service_port=reader.whole("BLOB_SERVICE_PORT", defaults.blob_service_port),
        worker_store_claim=reader.text("WORKER_STORE_CLAIM"),
        worker_store_cidrs=reader.text("WORKER_STORE_CIDRS"),
        worker_dns_cidrs=reader.networks("WORKER_DNS_CIDRS"),
        worker_import_refuse=reader.networks("WORKER_IMPORT_REFUSE"),
        api_server_host=environment.get(_API_SERVER, "").strip(),
        router_hubs=reader.text("ROUTER_HUBS"),
        router_ca=Path(file) if (file := reader.text("ROUTER_CA")) else None,
        router_url=reader.text("ROUTER_URL"),
        openai_engine=reader.text("OPENAI_ENGINE") or OPENAI_ENGINE,
        keda_metrics_url=reader.text("KEDA_METRICS_URL"),
        keda_secret=reader.text("KEDA_SECRET"),
        keda_pair_secret=reader.text("KEDA_PAIR_SECRET"),
    )
    _check_lease(settings)
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise SettingsError(
            "one of certificate and key is missing",
            where="FLOWMESH_TLS_CERT, FLOWMESH_TLS_KEY",
            remedy="set both, or neither for plain HTTP",
        )
    return settings


def _check_lease(settings: OperatorSettings) -> None:
    if not 0 < settings.retry_s < settings.renew_deadline_s < settings.lease_s:
        raise SettingsError(
            f"{settings.retry_s} s, {settings.renew_deadline_s} s and {settings.lease_s} s are not"
            " in order: a leader must stop before another may start",
            where="FLOWMESH_RETRY_S, FLOWMESH_RENEW_DEADLINE_S, FLOWMESH_LEASE_S",
            remedy="choose retry < renew deadline < lease, such as 1, 4 and 6",
        )


def _networks(text: str) -> tuple[str, ...]:
    return tuple(n.strip() for n in text.split(",") if n.strip())


def _own_namespace() -> str:
    return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() if _NAMESPACE_FILE.exists() else ""


class _Reader:
    """Reads variables; its errors name the variable."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str) -> str:
        return self._environment.get(f"FLOWMESH_{name}", "").strip()

    def required(self, name: str, remedy: str) -> str:
        value = self.text(name)
        if not value:
            raise SettingsError("is not set", where=f"FLOWMESH_{name}", remedy=remedy)
        return value

    def networks(self, name: str) -> str:
        """Returns networks separated by commas, checked and unchanged."""
        text = self.text(name)
        for network in _networks(text):
            try:
                ipaddress.ip_network(network)
            except ValueError as e:
                raise SettingsError(
                    f"{network!r} is not a network: {e}",
                    where=f"FLOWMESH_{name}",
                    remedy="write networks such as 34.118.224.0/20, separated by commas",
                ) from e
        return text

    def flag(self, name: str, *, default: bool = False) -> bool:
        text = self.text(name).lower() or str(default).lower()
        if text not in ("true", "false"):
            raise SettingsError(
                f"{text!r} is neither true nor false",
                where=f"FLOWMESH_{name}",
                remedy="correct or remove it",
            )
        return text == "true"

    def seconds(self, name: str, default: float) -> float:
        return self._number(name, default, float, "a number of seconds, such as 1.5")

    def whole(self, name: str, default: int) -> int:
        return int(self._number(name, default, int, "a whole number"))

    def days(self, name: str, default: int) -> int:
        return int(self._number(name, default, int, "a number of days, 1 or more", least=1))

    def byte_count(self, name: str) -> int:
        """Returns an amount of bytes; 0 where the variable is empty."""
        text = self.text(name)
        try:
            return not_zero(byte_count(text)) if text else 0
        except ValueError as e:
            raise SettingsError(
                str(e), where=f"FLOWMESH_{name}", remedy="correct or remove it"
            ) from e

    def keys(self, name: str) -> KeyRing:
        path = Path(self.required(name, "mount the Secret of the master key and name its file"))
        where = f"FLOWMESH_{name}={path}"
        try:
            return decode_ring(path.read_bytes(), where=where)
        except FlowMeshError as e:
            raise SettingsError(e.message, where=where, remedy=e.remedy) from e
        except OSError as e:
            raise SettingsError(
                f"cannot be read: {e.strerror}",
                where=where,
                remedy="mount the Secret of the master key there",
            ) from e

    def _number(
        self,
        name: str,
        default: float,
        read: Callable[[str], float],
        expected: str,
        *,
        least: float = 0,
    ) -> float:
        text = self.text(name)
        if not text:
            return default
        try:
            value = read(text)
        except ValueError:
            value = -1
        if value < least:
            raise SettingsError(
                f"{text!r} is not {expected}",
                where=f"FLOWMESH_{name}",
                remedy="correct or remove it",
            )
        return value
