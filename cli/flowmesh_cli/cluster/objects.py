"""Reads and writes FlowMeshWorkflow objects with the user's rights."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from flowmesh_cli.cluster.kubeconfig import Kubeconfig
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_sdk.workflow_objects import GROUP, PLURAL, VERSION, Object

T = TypeVar("T")

_CODES = {
    400: ExitCode.USAGE,
    401: ExitCode.NO_FABRIC,
    403: ExitCode.REFUSED,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.REFUSED,
    422: ExitCode.USAGE,
}
_REMEDIES = {
    401: "sign in to the cluster again; `kubectl auth whoami` says who you are",
    403: "ask an administrator for a role with this right; `kubectl auth can-i --list`",
    422: "correct the file, then submit it again",
}


class ExistsError(CliError):
    """An object of this name already exists."""


class MissingError(CliError):
    """No such object exists, or another one has its name now."""


class WorkflowObjects:
    """Creates, reads, patches and deletes the cluster's FlowMeshWorkflow objects."""

    def __init__(self, kubeconfig: Kubeconfig) -> None:
        client = kubeconfig.client()  # says what is missing
        from kubernetes.client import CustomObjectsApi  # noqa: PLC0415 - see kubeconfig

        self._api = CustomObjectsApi(client)

    def create(self, document: Object) -> Object | None:
        """Creates an object; returns None where one of its name exists.

        Raises:
            CliError: the API server refused it; the message is its own.
        """
        namespace = document["metadata"]["namespace"]
        try:
            created: Object = call_api_server(
                lambda: self._api.create_namespaced_custom_object(
                    GROUP, VERSION, namespace, PLURAL, document, field_manager="fmesh"
                ),
                where=f"flowmeshworkflows in {namespace}",
            )
        except ExistsError:
            return None
        return created

    def read(self, namespace: str, name: str) -> Object:
        """Returns an object with its status; raises as :meth:`create`."""
        return call_api_server(
            lambda: self._api.get_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, name),
            where=f"flowmeshworkflow {namespace}/{name}",
        )

    def patch(self, namespace: str, name: str, uid: str, spec: Object) -> Object:
        """Patches the spec of the object with this uid; raises as :meth:`create`."""
        body = {"metadata": {"uid": uid}, "spec": spec}
        return call_api_server(
            lambda: self._api.patch_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, name, body, field_manager="fmesh",
                _content_type="application/merge-patch+json",
            ),
            where=f"flowmeshworkflow {namespace}/{name}",
        )  # fmt: skip

    def delete(self, namespace: str, name: str, uid: str) -> None:
        """Deletes the object with this uid, if there is one; raises as :meth:`create`."""
        body = {"preconditions": {"uid": uid}}
        try:
            call_api_server(
                lambda: self._api.delete_namespaced_custom_object(
                    GROUP, VERSION, namespace, PLURAL, name, body=body
                ),
                where=f"flowmeshworkflow {namespace}/{name}",
            )
        except MissingError:
            return


def call_api_server(call: Callable[[], T], *, where: str) -> T:
    """Calls the API server and converts its errors.

    Raises:
        CliError: the API server refused, or does not answer.
    """
    from kubernetes.client.exceptions import ApiException  # noqa: PLC0415 - see kubeconfig
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - comes with kubernetes

    try:
        return call()
    except ApiException as e:
        status = e.status or _handshake_status(str(e.reason))
        code = _CODES.get(status, ExitCode.NO_FABRIC)
        kind = _kind(e)
        remedy = _create_namespace(e) or _REMEDIES.get(status, "")
        raise kind(_message(e), code, where=where, remedy=remedy) from e
    except (HTTPError, OSError) as e:
        raise CliError(
            f"the API server does not answer: {e}",
            ExitCode.NO_FABRIC,
            where=where,
            remedy="`kubectl cluster-info` shows whether it can be reached from here",
        ) from e


def _handshake_status(reason: str) -> int:
    """Returns the HTTP status of a refused WebSocket handshake, which is only in the text."""
    found = re.search(r"Handshake status (\d+)", reason)
    return int(found[1]) if found else 0


def _kind(error: Any) -> type[CliError]:
    reason = _body(error).get("reason")
    if error.status == 409 and reason == "AlreadyExists":  # noqa: PLR2004
        return ExistsError
    return MissingError if reason in ("NotFound", "Conflict") else CliError


def _create_namespace(error: Any) -> str:
    """Returns the remedy for a namespace that does not exist; empty for other errors."""
    details = _body(error).get("details") or {}
    if error.status != 404 or details.get("kind") != "namespaces":  # noqa: PLR2004
        return ""
    return f"kubectl create namespace {details.get('name')}, or choose another with -n NAME"


def _message(error: Any) -> str:
    return str(_body(error).get("message") or error.reason or f"HTTP {error.status}")


def _body(error: Any) -> Object:
    try:
        found = json.loads(error.body or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
