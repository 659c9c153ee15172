"""A cluster's FlowMeshWorkflow objects, by Kubernetes' own client.

That is the extra ``[cluster]``. It is imported when a program connects to a cluster.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from flowmesh_sdk.errors import ApiError, FabricUnavailableError, FlowMeshError
from flowmesh_sdk.workflow_objects import GROUP, PLURAL, VERSION, Object

T = TypeVar("T")
_CONFLICT = 409
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def bearer_token(header: str) -> str:
    """Returns the token of an ``Authorization`` header; empty where its scheme is another.

    Kubernetes' client writes the scheme in lower case in a pod, and as ``Bearer`` elsewhere.
    """
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class ClusterWorkflows:
    """Creates and reads objects with the user's rights; see ``ObjectAccess``.

    Attributes:
        namespace: of the context; in a pod the pod's.
    """

    def __init__(self, context: str = "") -> None:
        """Loads the kubeconfig, or the service account of the pod that the program runs in.

        Args:
            context: of the kubeconfig; the current one where empty.

        Raises:
            FlowMeshError: there is no such context, or Kubernetes' client is not installed.
        """
        try:
            import kubernetes  # noqa: PLC0415 - an extra, and slow to load
        except ImportError as e:
            raise FlowMeshError(
                "a cluster needs Kubernetes' client, which is not installed",
                where="connect()",
                remedy="pip install 'flowmesh-fabric-sdk[cluster]'",
            ) from e
        self._context = context
        self._kubernetes = kubernetes
        self.namespace = "default"
        self._load()
        api = kubernetes.client.ApiClient(self._configuration)
        self._objects = kubernetes.client.CustomObjectsApi(api)

    def token(self) -> str:
        """Returns the bearer token of the kubeconfig, read anew: a plugin may have renewed it.

        Raises:
            FlowMeshError: the user signs in by another method, which only the API server can check.
        """
        self._load()
        header: str = self._configuration.get_api_key_with_prefix("BearerToken") or ""
        token = bearer_token(header)
        if not token:
            raise FlowMeshError(
                "the kubeconfig has no token, and the gateway takes only tokens",
                where=f"context {self._context or 'current'}",
                remedy="pass token=…, of `kubectl create token NAME --audience flowmesh`",
            )
        return token

    def create(self, document: Object) -> Object | None:
        """Creates an object; returns None where one of its name exists.

        Raises:
            ApiError: the API server refuses it.
            FabricUnavailableError: it does not answer.
        """
        namespace = document["metadata"]["namespace"]
        try:
            created: Object = self._asked(
                f"flowmeshworkflows in {namespace}",
                lambda: self._objects.create_namespaced_custom_object(
                    GROUP, VERSION, namespace, PLURAL, document, field_manager="flowmesh-sdk"
                ),
            )
        except ApiError as e:
            if e.status != _CONFLICT:
                raise
            return None
        return created

    def read(self, namespace: str, name: str) -> Object:
        """Returns an object with its status; raises as :meth:`create`."""
        return self._asked(
            f"flowmeshworkflow {namespace}/{name}",
            lambda: self._objects.get_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, name
            ),
        )

    def _load(self) -> None:
        config = self._kubernetes.config
        self._configuration = self._kubernetes.client.Configuration()
        try:
            if not self._context and _POD_NAMESPACE.exists():
                config.load_incluster_config(client_configuration=self._configuration)
                self.namespace = _POD_NAMESPACE.read_text().strip()
                return
            contexts, active = config.list_kube_config_contexts()
            named = [c for c in contexts if c["name"] == self._context]
            self.namespace = (*named, active)[0]["context"].get("namespace") or "default"
            config.load_kube_config(
                context=self._context or None,
                client_configuration=self._configuration,
                persist_config=False,
            )
        except (config.ConfigException, OSError, ValueError) as e:
            raise FlowMeshError(
                f"the kubeconfig cannot be used: {e}",
                where="KUBECONFIG",
                remedy="`kubectl config get-contexts` lists its contexts",
            ) from e

    def _asked(self, where: str, ask: Callable[[], T]) -> T:
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - comes with Kubernetes' client

        try:
            return ask()
        except self._kubernetes.client.exceptions.ApiException as e:
            raise ApiError(_message(e), status=e.status or 0, where=where) from e
        except (HTTPError, OSError) as e:
            raise FabricUnavailableError(
                f"the API server does not answer: {e}",
                where=where,
                remedy="`kubectl cluster-info` shows whether it can be reached from here",
            ) from e


def _message(error: Any) -> str:
    try:
        body = json.loads(error.body or "{}")
    except ValueError:
        body = {}
    return str(body.get("message") or error.reason or f"HTTP {error.status}")
