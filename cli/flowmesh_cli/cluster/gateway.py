"""The client of a cluster's gateway, and the session on a cluster's fabric."""

import time
from functools import cached_property
from typing import TYPE_CHECKING

from flowmesh_cli.cluster.kubeconfig import Kubeconfig
from flowmesh_cli.cluster.objects import WorkflowObjects
from flowmesh_cli.cluster.transports import DirectTransport, PortForwardTransport
from flowmesh_cli.connection.client import ApiClient, FabricUnavailableError
from flowmesh_cli.connection.target import Target
from flowmesh_sdk.http.client import ErrorResponse

if TYPE_CHECKING:
    from flowmesh_sdk.http.transports import Transport

_UNAVAILABLE_STATUSES = (502, 503, 504)
_TIMEOUT_S = 60.0
_POLL_S = 0.5


class ClusterGateway(ApiClient):
    """The client of a cluster's control plane, with access to the user's workflow objects."""

    def __init__(self, place: Target) -> None:
        """Reads the kubeconfig and chooses the transport.

        Raises:
            CliError: the kubeconfig, or an option that selects the cluster, cannot be used.
        """
        self.kubeconfig = Kubeconfig(place)
        transport: Transport
        if place.server:
            url, transport = place.server, DirectTransport(place, self.kubeconfig)
        else:
            url = f"context {self.kubeconfig.context}, namespace {place.system_namespace}"
            transport = PortForwardTransport(place, self.kubeconfig)
        own = place.namespace or self.kubeconfig.namespace
        super().__init__(url, transport, namespace="" if place.every_namespace else own)
        self.default_namespace = own
        self._system_namespace = place.system_namespace

    @cached_property
    def objects(self) -> WorkflowObjects:
        """The user's workflow objects."""
        return WorkflowObjects(self.kubeconfig)

    def reconnect(self) -> None:
        """Waits until the gateway answers: another replica may have to take over first.

        Raises:
            FabricUnavailableError: it did not answer in time.
        """
        end = time.monotonic() + _TIMEOUT_S
        while True:
            self.close()
            try:
                self.call("GET", "/healthz")
            except FabricUnavailableError:
                if time.monotonic() > end:
                    raise
                time.sleep(_POLL_S)
            else:
                return

    def refused(self, refusal: ErrorResponse) -> Exception:
        """See ``ApiClient.refused``; an error of a proxy is one of a gateway that is away."""
        if refusal.status in _UNAVAILABLE_STATUSES and not refusal.problems:
            return self._unavailable(refusal.message)
        return super().refused(refusal)

    def unreachable(self, why: str) -> Exception:
        """See ``ApiClient.unreachable``."""
        return self._unavailable(why)

    def _unavailable(self, why: str) -> FabricUnavailableError:
        remedy = (
            f"`kubectl get pods -n {self._system_namespace} -L flowmesh.dev/leader` shows the "
            "operator; --system-namespace sets its namespace, --ca its CA certificate"
        )
        return FabricUnavailableError(self.url, why, remedy=remedy)


class ClusterSession:
    """A session on a cluster's fabric, which runs on when the command ends."""

    is_owner = False

    def __init__(self, place: Target) -> None:
        """Connects; raises as :class:`ClusterGateway`."""
        self.gateway = ClusterGateway(place)
        self.http: ApiClient = self.gateway

    def reconnect(self) -> None:
        """See ``ReachableFabric.again``."""
        self.gateway.reconnect()

    def is_last(self) -> bool:
        """Returns True: this process serves no fabric that others could use."""
        return True

    def close(self) -> None:
        """Closes the connection."""
        self.gateway.close()

    def abandon(self) -> None:
        """Does nothing: this process serves no fabric."""
