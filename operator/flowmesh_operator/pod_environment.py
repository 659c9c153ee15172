"""Where the pods of pools run: what the operator must tell every worker, whatever its pool."""

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

_HTTPS_PORT = 443
IMPORT_REFUSE = "FLOWMESH_IMPORT_REFUSE"
"""The variable that workers read the refused networks from."""


@dataclass(frozen=True, slots=True)
class PodEnvironment:
    """The same for all pools; from the operator's environment.

    Attributes:
        namespace: the operator's own: pools and their objects are there.
        gateway: ``wss://host:port`` of the gateway's Service.
        store: the store's address as workers reach it.
        ca_secret: the Secret whose ``ca.crt`` workers trust for the gateway; none if empty.
        store_secret: the Secret with the workers' ``AWS_*`` variables; none if empty.
        store_claim: the claim that holds the store, where it is a directory; none if empty.
        operator_labels: of the gateway's pods, for the NetworkPolicy.
        store_cidrs: where the bucket may be; a bucket of this namespace needs none.
        metrics_url: what KEDA reads the number of wanted workers from.
        metrics_secret: the Secret with the token that it shows there; none if empty.
        metrics_pair_secret: the Secret with a certificate and its key, which it wants to have
            before it checks the gateway's; ``metrics_secret`` if empty.
        cluster_cidrs: networks of the cluster, which users' imports and calls must not reach.
        api_server_host: the API server as pods reach it; none if empty.
    """

    namespace: str
    gateway: str
    store: str
    ca_secret: str = ""
    store_secret: str = ""
    store_claim: str = ""
    operator_labels: dict[str, str] = field(
        default_factory=lambda: {
            "app.kubernetes.io/name": "flowmesh",
            "app.kubernetes.io/component": "operator",
        }
    )
    store_cidrs: tuple[str, ...] = ("0.0.0.0/0", "::/0")
    metrics_url: str = ""
    metrics_secret: str = ""
    metrics_pair_secret: str = ""
    cluster_cidrs: tuple[str, ...] = ()
    api_server_host: str = ""

    @property
    def gateway_port(self) -> int:
        """The port of the gateway's pods (the Service has the same)."""
        return urlsplit(self.gateway).port or _HTTPS_PORT

    @property
    def store_path(self) -> str:
        """The directory of a store that is one; empty for a bucket."""
        parts = urlsplit(self.store)
        return parts.path if parts.scheme in {"", "file"} else ""

    @property
    def store_host(self) -> str:
        """The host of the bucket's endpoint; empty where it is the provider's, or a directory."""
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
        """What users' imports and calls must not reach although it may be public.

        Workers refuse private addresses of themselves, so those of the API server and the bucket
        are named only where they are public ones.
        """
        hosts = (self.api_server_host, self.store_host)
        return (*self.cluster_cidrs, *(n for host in hosts for n in _public_address(host)))

    @property
    def _endpoint(self) -> tuple[str, int]:
        if self.store_path:
            return "", 0
        (endpoint,) = parse_qs(urlsplit(self.store).query).get("endpoint", [""])
        parts = urlsplit(endpoint)
        usual = 80 if parts.scheme == "http" else _HTTPS_PORT
        return parts.hostname or "", parts.port or usual


def _public_address(host: str) -> tuple[str, ...]:
    """The network of one host that is written as a public address; none otherwise."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ()
    return (str(ipaddress.ip_network(address)),) if address.is_global else ()
