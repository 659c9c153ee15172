"""Transports to a cluster's gateway: direct, or through the API server."""

import http.client
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

from flowmesh_cli.cluster.kubeconfig import Kubeconfig
from flowmesh_cli.cluster.objects import call_api_server
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

LEADER = "flowmesh.dev/leader=true"
SERVICE = "flowmesh-gateway"
PORT_NAME = "gateway"
PORT = 8470
_HTTPS = 443


def trusted(place: Target) -> ssl.SSLContext:
    """Returns a TLS context that trusts the ``--ca`` file's authorities, or the system's.

    Raises:
        CliError: the file has no certificates.
    """
    try:
        return ssl.create_default_context(cafile=place.ca)
    except (OSError, ssl.SSLError) as e:
        raise CliError(
            f"no certificates can be read: {e}",
            ExitCode.USAGE,
            where=f"--ca {place.ca}",
            remedy="give a PEM file with the CA certificate of the gateway",
        ) from e


class DirectTransport:
    """Connects directly to the gateway's address."""

    def __init__(self, place: Target, kubeconfig: Kubeconfig) -> None:
        """Checks the address.

        Raises:
            CliError: the address is invalid, or would send the token unencrypted.
        """
        self._parts = urlsplit(place.server)
        host = self._parts.hostname or ""
        if self._parts.scheme not in ("http", "https") or not host:
            raise CliError(
                f"{place.server!r} is not a gateway's address",
                ExitCode.USAGE,
                where="--server",
                remedy="e.g. https://flowmesh.example.com:8470",
            )
        if self._parts.scheme == "http" and host not in ("127.0.0.1", "::1", "localhost"):
            raise CliError(
                "http:// would send your token over the network unencrypted",
                ExitCode.USAGE,
                where=f"--server {place.server}",
                remedy="use https://, or omit --server to connect through the API server",
            )
        self._host = host
        self._context = trusted(place) if self._parts.scheme == "https" else None
        self._kubeconfig = kubeconfig

    def connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        """See ``Transport.connect``."""
        port = self._parts.port
        if self._context is None:
            return http.client.HTTPConnection(self._host, port or PORT, timeout=timeout_s)
        return http.client.HTTPSConnection(
            self._host, port or _HTTPS, timeout=timeout_s, context=self._context
        )

    def token(self, *, renewed: bool) -> str:
        """See ``Transport.token``."""
        return self._kubeconfig.token(renewed=renewed)


class PortForwardTransport:
    """Connects through the API server to the leader's pod, as ``kubectl port-forward`` does."""

    def __init__(self, place: Target, kubeconfig: Kubeconfig) -> None:
        from kubernetes.client import CoreV1Api  # noqa: PLC0415 - see kubeconfig

        self._place = place
        self._kubeconfig = kubeconfig
        self._core = CoreV1Api(kubeconfig.client())
        self._context = trusted(place)
        if place.ca is None:
            # The API server has verified the kubelet, and the kubelet connects inside of the pod's
            # network: only the cluster's administrator could intercept the connection.
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE

    def connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        """See ``Transport.connect``; looks up the leader each time, since it may have changed."""
        from kubernetes.stream import portforward  # noqa: PLC0415 - see kubeconfig

        (pod, port), namespace = self._leader(), self._place.system_namespace
        forward = call_api_server(
            lambda: portforward(
                self._core.connect_get_namespaced_pod_portforward,
                pod,
                namespace,
                ports=str(port),
            ),
            where=f"port-forward to pod {namespace}/{pod}",
        )
        plain = _socket(forward, port)
        plain.settimeout(timeout_s)
        name = f"{SERVICE}.{namespace}.svc"
        connection = http.client.HTTPConnection(name, port, timeout=timeout_s)
        connection.auto_open = 0  # a closed one is forwarded again: its name does not resolve
        connection.sock = self._context.wrap_socket(plain, server_hostname=name)
        return connection

    def token(self, *, renewed: bool) -> str:
        """See ``Transport.token``."""
        return self._kubeconfig.token(renewed=renewed)

    def _leader(self) -> tuple[str, int]:
        """Returns the leader's pod and the port of its gateway."""
        namespace = self._place.system_namespace
        found = call_api_server(
            lambda: self._core.list_namespaced_pod(
                namespace, label_selector=LEADER, field_selector="status.phase=Running"
            ),
            where=f"pods in {namespace}",
        )
        if not found.items:
            raise ConnectionError(
                f"no pod in namespace {namespace} has the label {LEADER}: no operator leads there"
            )
        pod = found.items[0]
        ports = [p for c in pod.spec.containers for p in c.ports or () if p.name == PORT_NAME]
        return str(pod.metadata.name), ports[0].container_port if ports else PORT


def _socket(forward: Any, port: int) -> socket.socket:
    """Returns the socket of a forwarded port, for a TLS connection on it."""
    found: socket.socket = forward.socket(port)._socket  # the wrapper around it is not a socket
    return found
