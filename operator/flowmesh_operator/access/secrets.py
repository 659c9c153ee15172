"""Reads the Secrets that a workflow names, from the workflow's namespace.

The chart gives the operator no right to read Secrets: the owner of a namespace grants it with a
Role, and the remedies of the errors here show the commands. A Secret is sent only to the hosts that
its annotations name.
"""

import base64
import binascii

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.spec.secrets import SecretLocation, SecretValue
from flowmesh_operator.access.grants import grant
from flowmesh_operator.access.secret_rules import allowed_hosts
from flowmesh_operator.kube.client import FORBIDDEN, NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.kinds import SECRETS
from flowmesh_operator.settings import OperatorSettings


class NamespaceSecrets:
    """Implements the control plane's ``SecretReader`` with the API server."""

    def __init__(self, api: KubeClient, settings: OperatorSettings) -> None:
        self._api = api
        self._settings = settings

    async def read(
        self, namespace: str, names: tuple[str, ...], engine: str
    ) -> dict[str, SecretValue]:
        """Returns the values by bare name; see ``flowmesh_control.ports.SecretReader``.

        Raises:
            FlowMeshError: a Secret is missing, or not in ``spec.secrets``, or the operator may not
                read it, or its annotations do not allow that it is sent.
        """
        locations = [SecretLocation.parse(name) for name in names]
        return {found.name: await self._one(namespace, found, engine) for found in locations}

    async def _one(self, namespace: str, location: SecretLocation, engine: str) -> SecretValue:
        where = f"secret {namespace}/{location.object}"
        if not location.key:
            raise FlowMeshError(
                f"the workflow does not say where the secret {location.name} is",
                where=where,
                remedy=f"add it to the workflow: spec.secrets.{location.name} = {{name:"
                f" {location.object}, key: {location.name}}}",
            )
        try:
            found = await self._api.get(*SECRETS, namespace, location.object)
        except ApiError as e:
            raise self._refused(namespace, location, e) from e
        annotations = found["metadata"].get("annotations") or {}
        hosts = allowed_hosts(annotations, namespace, location.object, engine)
        data, key = found.get("data") or {}, location.key
        if key not in data:
            raise FlowMeshError(
                f"it has no key {key!r}",
                where=where,
                remedy=f"name one of its keys: spec.secrets.{location.name} = {{name, key}};"
                f" `kubectl describe secret {location.object} -n {namespace}` shows them",
            )
        try:
            return SecretValue(base64.b64decode(data[key]).decode(), hosts)
        except (binascii.Error, UnicodeDecodeError) as e:
            raise FlowMeshError(
                f"its key {key!r} is not text", where=where, remedy="store it as UTF-8"
            ) from e

    def _refused(self, namespace: str, location: SecretLocation, error: ApiError) -> FlowMeshError:
        where, name = f"secret {namespace}/{location.object}", location.object
        if error.status == NOT_FOUND:
            return FlowMeshError(
                "there is no such secret",
                where=where,
                remedy=f"kubectl create secret generic {name} -n {namespace}"
                f" --from-literal={location.key}=...",
            )
        if error.status == FORBIDDEN:
            message = "the operator has no right to get it"
            remedy = grant(self._settings, namespace, "secrets", name)
            return FlowMeshError(message, where=where, remedy=remedy)
        return error
