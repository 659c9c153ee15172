"""Reads the Secrets that a workflow names, from the workflow's namespace.

The chart gives the operator no right to read Secrets: the owner of a namespace grants it with a
Role, and the remedies of the errors here show the commands.
"""

import base64
import binascii

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.spec.secrets import SecretLocation
from flowmesh_operator.access.grants import grant
from flowmesh_operator.kube.client import FORBIDDEN, NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.kinds import SECRETS
from flowmesh_operator.settings import OperatorSettings


class NamespaceSecrets:
    """Implements the control plane's ``SecretReader`` with the API server."""

    def __init__(self, api: KubeClient, settings: OperatorSettings) -> None:
        self._api = api
        self._settings = settings

    async def read(self, namespace: str, names: tuple[str, ...]) -> dict[str, str]:
        """Returns the values by bare name; see ``flowmesh_control.ports.SecretReader``.

        Raises:
            FlowMeshError: a Secret is missing or the operator may not read it.
        """
        locations = [SecretLocation.parse(name) for name in names]
        return {location.name: await self._one(namespace, location) for location in locations}

    async def _one(self, namespace: str, location: SecretLocation) -> str:
        where = f"secret {namespace}/{location.object}"
        try:
            found = await self._api.get(*SECRETS, namespace, location.object)
        except ApiError as e:
            raise self._refused(namespace, location, e) from e
        data = found.get("data") or {}
        key = location.key or _key(data, location.name)
        if key not in data:
            raise FlowMeshError(
                f"it has no key {key!r}; its keys: {', '.join(sorted(data)) or 'none'}",
                where=where,
                remedy=f"name one of them: spec.secrets.{location.name} = {{name, key}}",
            )
        try:
            return base64.b64decode(data[key]).decode()
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
                f" --from-literal={location.key or location.name}=...",
            )
        if error.status == FORBIDDEN:
            message = "the operator has no right to get it"
            remedy = grant(self._settings, namespace, "secrets", name)
            return FlowMeshError(message, where=where, remedy=remedy)
        return error


def _key(data: dict[str, str], name: str) -> str:
    """Returns the key to read where the workflow names none: the secret's name, or the only key."""
    return next(iter(data)) if name not in data and len(data) == 1 else name
