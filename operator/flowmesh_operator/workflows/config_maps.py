"""Reads inputs from ConfigMaps of the workflow's namespace and uploads them to the store."""

import base64
from collections.abc import Mapping

from flowmesh_api.v1.problems import Problem
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_core.errors import FlowMeshError, IdentityError, SpecError
from flowmesh_operator.access.grants import grant
from flowmesh_operator.kube.client import FORBIDDEN, NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.informer_cache import Object
from flowmesh_operator.kube.kinds import CONFIG_MAPS
from flowmesh_operator.settings import OperatorSettings


class UnreadableError(FlowMeshError):
    """A ConfigMap does not exist, or the operator may not read it, yet."""


class ConfigMapInputs:
    """Uploads ConfigMap inputs and returns their references."""

    def __init__(self, api: KubeClient, settings: OperatorSettings, uploads: UploadStore) -> None:
        self._api = api
        self._settings = settings
        self._uploads = uploads

    async def store(self, obj: Object, scope: str) -> dict[str, str]:
        """Uploads every ConfigMap input of a workflow.

        Args:
            obj: the workflow.
            scope: the namespace's private scope.

        Returns:
            References by the input's name.

        Raises:
            UnreadableError: a ConfigMap cannot be read now.
            SpecError: the content of one cannot be read as rows.
        """
        inputs = obj["spec"].get("inputs") or {}
        wanted = {n: i["configMap"] for n, i in inputs.items() if i.get("configMap")}
        return {
            name: await self._one(name, obj["metadata"]["namespace"], given, scope)
            for name, given in wanted.items()
        }

    async def _one(self, name: str, namespace: str, given: Mapping[str, str], scope: str) -> str:
        path = f"spec.inputs.{name}.configMap"
        found = await self._read(path, namespace, given["name"])
        data = _bytes(found, given["key"])
        if data is None:
            keys = sorted([*(found.get("data") or {}), *(found.get("binaryData") or {})])
            raise UnreadableError(
                f"ConfigMap {given['name']} has no key {given['key']!r};"
                f" its keys: {', '.join(keys) or 'none'}",
                where=path,
                remedy="add the key, or submit a workflow that names another",
            )
        try:
            return (await self._uploads.put_file(given["key"], data, scope)).reference
        except IdentityError as e:
            raise SpecError([Problem(path, f"{given['name']}/{given['key']}: {e}")]) from e

    async def _read(self, path: str, namespace: str, name: str) -> Object:
        try:
            return await self._api.get(*CONFIG_MAPS, namespace, name)
        except ApiError as e:
            if e.status == NOT_FOUND:
                message = f"ConfigMap {namespace}/{name} does not exist"
                remedy = f"kubectl create configmap {name} -n {namespace} --from-file=FILE"
            elif e.status == FORBIDDEN:
                message = f"the operator has no right to get ConfigMap {namespace}/{name}"
                remedy = grant(self._settings, namespace, "configmaps", name)
            else:
                raise
            raise UnreadableError(message, where=path, remedy=remedy) from e


def _bytes(found: Object, key: str) -> bytes | None:
    text = (found.get("data") or {}).get(key)
    if text is not None:
        return str(text).encode()
    packed = (found.get("binaryData") or {}).get(key)
    return None if packed is None else base64.b64decode(packed)
