"""Requests to a cluster's gateway: an ``ApiClient`` and the objects of its user."""

import time
from functools import cached_property

from flowmesh_cli.cluster.kubeconfig import Kubeconfig
from flowmesh_cli.cluster.objects import WorkflowObjects
from flowmesh_cli.cluster.transports import DirectTransport, PortForwardTransport
from flowmesh_cli.connection.client import ApiClient, FabricGoneError, Transport
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_core.errors import SpecError

_AWAY = (502, 503, 504)
_WITHIN_S = 60.0
_POLL_S = 0.5


class ClusterGateway(ApiClient):
    """Requests to a cluster's control plane, and its user's objects."""

    def __init__(self, place: Target) -> None:
        """Takes which cluster.

        Raises:
            CliError: the kubeconfig, or what was said beside it, cannot be used.
        """
        self.kubeconfig = Kubeconfig(place)
        way: Transport
        if place.server:
            url, way = place.server, DirectTransport(place, self.kubeconfig)
        else:
            url = f"context {self.kubeconfig.context}, namespace {place.system_namespace}"
            way = PortForwardTransport(place, self.kubeconfig)
        own = place.namespace or self.kubeconfig.namespace
        super().__init__(url, way, namespace="" if place.every_namespace else own)
        self.default_namespace = own
        self._system_namespace = place.system_namespace

    @cached_property
    def objects(self) -> WorkflowObjects:
        """The user's workflows."""
        return WorkflowObjects(self.kubeconfig)

    def again(self) -> None:
        """Waits until it answers: another replica may have to take over first.

        Raises:
            FabricGoneError: it stayed away.
        """
        end = time.monotonic() + _WITHIN_S
        while True:
            self.close()
            try:
                self.call("GET", "/healthz")
            except FabricGoneError:
                if time.monotonic() > end:
                    raise
                time.sleep(_POLL_S)
            else:
                return

    def _error(self, status: int, data: bytes) -> CliError | SpecError:
        error = super()._error(status, data)
        if status in _AWAY and isinstance(error, CliError):
            return self._away(error.message)
        return error

    def _gone(self, error: Exception) -> FabricGoneError:
        return self._away(str(error) or type(error).__name__)

    def _away(self, why: str) -> FabricGoneError:
        remedy = (
            f"`kubectl get pods -n {self._system_namespace} -L flowmesh.dev/leader` shows the "
            "operator; --system-namespace names another place, --ca the gateway's authority"
        )
        return FabricGoneError(self.url, why, remedy=remedy)


class ClusterSession:
    """A cluster's fabric: served by the cluster, whoever leaves."""

    is_owner = False

    def __init__(self, place: Target) -> None:
        """Goes there; raises as :class:`Gateway`."""
        self.gateway = ClusterGateway(place)
        self.http: ApiClient = self.gateway

    def again(self) -> None:
        """As ``ReachableFabric.again``."""
        self.gateway.again()

    def is_last(self) -> bool:
        """It ends for nobody."""
        return True

    def close(self) -> None:
        """Leaves."""
        self.gateway.close()

    def abandon(self) -> None:
        """Nothing here is this process's to end."""
