"""The environment of all pools' pods: addresses, Secrets and networks that workers need."""

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from flowmesh_store.blobs import DEFAULT_GRACE_S

_HTTPS_PORT = 443
ANYWHERE = ("0.0.0.0/0", "::/0")
"""All networks."""
IMPORT_REFUSE = "FLOWMESH_IMPORT_REFUSE"
LLM = "FLOWMESH_LLM"
"""The variable from which workers read the networks that imports must not reach."""


@dataclass(frozen=True, slots=True)
class PodEnvironment:
    """Values that are the same for all pools; made from :class:`OperatorSettings`.

    Attributes:
        namespace: the operator's own, with the pools and their objects.
        gateway: ``wss://host:port`` of the gateway's Service.
        store: the store's address as workers reach it; of a bucket they need only the server.
        blob_service: ``https://host:port`` of the blob service; empty for a directory.
        ca_secret: the Secret whose ``ca.crt`` workers trust for gateway and blob service; none if
            empty.
        store_ca_secret: the Secret whose ``ca.crt`` workers trust for the bucket's server; none if
            empty.
        store_claim: the PersistentVolumeClaim of a store that is a directory; none if empty.
        operator_labels: labels of the gateway's pods, for the NetworkPolicy.
        blob_service_labels: labels of the blob service's pods.
        router_hubs: where hubs reach the routers of services, as ``tls:host:port``; empty for none.
        router_labels: labels of the routers' pods.
        store_cidrs: networks of the bucket; not used for a bucket in this namespace.
        store_grace_s: the collector's grace, for workers that write to the store themselves.
        dns_cidrs: networks of DNS servers besides the cluster's own, such as caches on the nodes.
        metrics_url: the URL from which KEDA reads the number of wanted workers.
        metrics_secret: the Secret with the token that KEDA sends there; none if empty.
        metrics_pair_secret: the Secret with KEDA's client certificate and key, without which KEDA
            does not check the gateway's certificate; ``metrics_secret`` if empty.
        cluster_cidrs: networks of the cluster, which users' imports and calls must not reach.
        api_server_host: the API server's host as pods reach it; none if empty.
    """

    namespace: str
    gateway: str
    store: str
    blob_service: str = ""
    ca_secret: str = ""
    store_ca_secret: str = ""
    store_claim: str = ""
    operator_labels: dict[str, str] = field(
        default_factory=lambda: {
            "app.kubernetes.io/name": "flowmesh",
            "app.kubernetes.io/component": "operator",
        }
    )
    blob_service_labels: dict[str, str] = field(
        default_factory=lambda: {
            "app.kubernetes.io/name": "flowmesh",
            "app.kubernetes.io/component": "blobs",
        }
    )
    router_hubs: str = ""
    router_labels: dict[str, str] = field(
        default_factory=lambda: {
            "app.kubernetes.io/name": "flowmesh",
            "app.kubernetes.io/component": "router",
        }
    )
    store_cidrs: tuple[str, ...] = ANYWHERE
    store_grace_s: float = DEFAULT_GRACE_S
    dns_cidrs: tuple[str, ...] = ()
    metrics_url: str = ""
    metrics_secret: str = ""
    metrics_pair_secret: str = ""
    cluster_cidrs: tuple[str, ...] = ()
    api_server_host: str = ""

    @property
    def gateway_port(self) -> int:
        """The port of the gateway's pods, which its Service has too."""
        return urlsplit(self.gateway).port or _HTTPS_PORT

    @property
    def blob_service_port(self) -> int:
        """The port of the blob service's pods, which its Service has too."""
        return urlsplit(self.blob_service).port or _HTTPS_PORT

    @property
    def router_port(self) -> int:
        """The port of the routers' pods for hubs; 0 where there are no routers."""
        return int(self.router_hubs.rpartition(":")[2]) if self.router_hubs else 0

    @property
    def store_path(self) -> str:
        """The path of a store that is a directory; empty for a bucket."""
        parts = urlsplit(self.store)
        return parts.path if parts.scheme in {"", "file"} else ""

    @property
    def store_host(self) -> str:
        """The host of the bucket's endpoint; empty for the provider's own and for directories."""
        return self._endpoint[0]

    @property
    def store_port(self) -> int:
        """The port of the bucket's endpoint."""
        return self._endpoint[1]

    @property
    def store_is_near(self) -> bool:
        """Whether the bucket is a Service of the cluster."""
        host = self.store_host
        return host.endswith((".svc", ".svc.cluster.local")) or (bool(host) and "." not in host)

    @property
    def refused_networks(self) -> tuple[str, ...]:
        """Networks that users' imports and calls must not reach although they may be public.

        Workers refuse private addresses by themselves, so the API server and the bucket are in it
        only where their addresses are public.
        """
        hosts = (self.api_server_host, self.store_host)
        return (*self.cluster_cidrs, *(n for host in hosts for n in _public_address(host)))

    @property
    def _endpoint(self) -> tuple[str, int]:
        if self.store_path:
            return "", 0
        (endpoint,) = parse_qs(urlsplit(self.store).query).get("endpoint", [""])
        parts = urlsplit(endpoint)
        default_port = 80 if parts.scheme == "http" else _HTTPS_PORT
        return parts.hostname or "", parts.port or default_port


def _public_address(host: str) -> tuple[str, ...]:
    """Returns the one-address network of a public IP address; empty for names and private ones."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ()
    return (str(ipaddress.ip_network(address)),) if address.is_global else ()
