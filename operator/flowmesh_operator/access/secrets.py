"""Secrets of a workflow's namespace, under a right that the namespace's owner gives.

The operator has no right of its own to read Secrets: whoever owns one grants it by a Role.
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
    """The control plane's port for secrets."""

    def __init__(self, api: KubeClient, settings: OperatorSettings) -> None:
        """Takes the way to the API server, and whom a Role must name."""
        self._api = api
        self._settings = settings

    async def read(self, namespace: str, names: tuple[str, ...]) -> dict[str, str]:
        """The values by bare name; see ``flowmesh_control.ports.SecretReader``.

        Raises:
            FlowMeshError: one is not there or may not be read; names it and the remedy.
        """
        places = [SecretLocation.parse(name) for name in names]
        return {place.name: await self._one(namespace, place) for place in places}

    async def _one(self, namespace: str, place: SecretLocation) -> str:
        where = f"secret {namespace}/{place.object}"
        try:
            found = await self._api.get(*SECRETS, namespace, place.object)
        except ApiError as e:
            raise self._refused(namespace, place, e) from e
        data = found.get("data") or {}
        key = place.key or _key(data, place.name)
        if key not in data:
            raise FlowMeshError(
                f"it has no key {key!r}; its keys: {', '.join(sorted(data)) or 'none'}",
                where=where,
                remedy=f"name one of them: spec.secrets.{place.name} = {{name, key}}",
            )
        try:
            return base64.b64decode(data[key]).decode()
        except (binascii.Error, UnicodeDecodeError) as e:
            raise FlowMeshError(
                f"its key {key!r} is not text", where=where, remedy="store it as UTF-8"
            ) from e

    def _refused(self, namespace: str, place: SecretLocation, error: ApiError) -> FlowMeshError:
        where, name = f"secret {namespace}/{place.object}", place.object
        if error.status == NOT_FOUND:
            return FlowMeshError(
                "there is no such secret",
                where=where,
                remedy=f"kubectl create secret generic {name} -n {namespace}"
                f" --from-literal={place.key or place.name}=...",
            )
        if error.status == FORBIDDEN:
            message = "the operator has no right to get it"
            remedy = grant(self._settings, namespace, "secrets", name)
            return FlowMeshError(message, where=where, remedy=remedy)
        return error


def _key(data: dict[str, str], name: str) -> str:
    """The key to read where the workflow does not say: the secret's own name, or the only one."""
    return next(iter(data)) if name not in data and len(data) == 1 else name
