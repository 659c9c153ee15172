"""Runs of a cluster, which are FlowMeshWorkflow objects, by Kubernetes' own client.

That is the extra ``[cluster]``. It is imported when a program connects to a cluster.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.runs import RunAccepted, RunStatus
from flowmesh_sdk.errors import ApiError, FabricUnavailableError, FlowMeshError
from flowmesh_sdk.http.client import ApiConnection

T = TypeVar("T")
Object = dict[str, Any]
GROUP, VERSION, PLURAL = "flowmesh.dev", "v1alpha1", "flowmeshworkflows"
ACCEPTED_WITHIN_S = 60.0
_POLL_S = 0.1
_NAME_CHARS = 55
"""Of a name before the suffix that makes it unique; a label has at most 63 characters."""
_NOT_FOUND, _CONFLICT, _WRONG = 404, 409, 422
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

def bearer_token(header: str) -> str:
    """Returns the token of an ``Authorization`` header; empty where its scheme is another.

    Kubernetes' client writes the scheme in lower case in a pod, and as ``Bearer`` elsewhere.
    """
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class ClusterWorkflows:
    """Creates objects with the user's rights.

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

    def submit(self, http: ApiConnection, document: Object, *, resume: bool) -> RunAccepted:
        """Creates the object of a workflow, and returns its run once the operator has accepted it.

        Args:
            http: the cluster's control plane.
            document: the workflow, with references in place of local files.
            resume: whether an unfinished object of this name with the same spec is returned.

        Raises:
            ApiError: the API server or the operator refuses it.
            FabricUnavailableError: it was not accepted within a minute.
        """
        try:
            created, resumed = self._create(document), False
        except ApiError as e:
            if e.status != _CONFLICT:
                raise
            created, resumed = self._of_that_name(http, document, resume=resume)
        made = created["metadata"]
        run = RunAccepted(made["uid"], made["name"], made["namespace"], resumed)
        self._wait(http, run)
        return run

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

    def _create(self, document: Object) -> Object:
        namespace = document["metadata"]["namespace"]
        return self._asked(
            f"flowmeshworkflows in {namespace}",
            lambda: self._objects.create_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, document, field_manager="flowmesh-sdk"
            ),
        )

    def _read(self, namespace: str, name: str) -> Object:
        return self._asked(
            f"flowmeshworkflow {namespace}/{name}",
            lambda: self._objects.get_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, name
            ),
        )

    def _of_that_name(
        self, http: ApiConnection, document: Object, *, resume: bool
    ) -> tuple[Object, bool]:
        """Returns the object that has the name, if it is this workflow's and live, or a new one."""
        meta = document["metadata"]
        found = self._read(meta["namespace"], meta["name"])
        if resume and found["spec"] == document["spec"] and not _has_ended(http, found):
            return found, True
        name = f"{meta['name'][:_NAME_CHARS].rstrip('-.')}-{os.urandom(3).hex()}"
        return self._create({**document, "metadata": {**meta, "name": name}}), False

    def _wait(self, http: ApiConnection, run: RunAccepted) -> None:
        """Waits until the operator has started the run of an object."""
        end = time.monotonic() + ACCEPTED_WITHIN_S
        while True:
            try:
                http.get(f"/v1/runs/{run.uid}", RunStatus)
            except ApiError as e:
                if e.status != _NOT_FOUND:
                    raise
            else:
                return
            message = _refusal(self._read(run.namespace, run.name))
            if time.monotonic() > end:
                raise FabricUnavailableError(
                    message or "the operator has not accepted the object yet",
                    where=f"flowmeshworkflow {run.namespace}/{run.name}",
                    remedy=f"`kubectl describe fmw {run.name} -n {run.namespace}` shows why",
                )
            time.sleep(_POLL_S)

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


def _has_ended(http: ApiConnection, found: Object) -> bool:
    """Whether an object's run has ended; the fabric knows it before the object's status does."""
    try:
        phase = http.get(f"/v1/runs/{found['metadata']['uid']}", RunStatus).phase
    except ApiError as e:
        if e.status != _NOT_FOUND:
            raise
        phase = (found.get("status") or {}).get("phase", "")
    return phase in ENDED_PHASES


def _refusal(found: Object) -> str:
    """Returns why an object is not accepted yet; raises where it is refused for good."""
    conditions = {c["type"]: c for c in (found.get("status") or {}).get("conditions") or ()}
    accepted: Mapping[str, Any] = conditions.get("Accepted", {})
    message = str(accepted.get("message", ""))
    if accepted.get("status") != "False":
        return ""
    if conditions.get("Failed", {}).get("status") == "True":
        remedy = "correct it and submit it again; `kubectl delete fmw NAME` removes the object"
        raise ApiError(message, status=_WRONG, where=found["metadata"]["name"], remedy=remedy)
    return message


def _message(error: Any) -> str:
    try:
        body = json.loads(error.body or "{}")
    except ValueError:
        body = {}
    return str(body.get("message") or error.reason or f"HTTP {error.status}")
