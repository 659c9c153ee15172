"""Secrets of a local fabric, from the environment variables of ``fmesh``."""

import os

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.spec.secrets import SecretLocation, SecretValue

PREFIX = "FMESH_SECRET_"
_ANY_HOST = ("*",)


class EnvironmentSecrets:
    """Reads the secret ``hf-token`` from ``FMESH_SECRET_HF_TOKEN``."""

    async def read(
        self, namespace: str, names: tuple[str, ...], engine: str
    ) -> dict[str, SecretValue]:
        """Returns the values by name, for any host and engine.

        Locally namespaces, workflows and secrets belong to one user.

        Raises:
            FlowMeshError: a variable is not set.
        """
        del namespace, engine
        bare_names = [SecretLocation.parse(text).name for text in names]
        variables = {name: PREFIX + name.upper().replace("-", "_") for name in bare_names}
        missing = [variable for variable in variables.values() if variable not in os.environ]
        if missing:
            raise FlowMeshError(
                f"not set: {', '.join(missing)}",
                where="secrets",
                remedy="export each of them before `fmesh run` or `fmesh up`",
            )
        return {
            name: SecretValue(os.environ[variable], _ANY_HOST)
            for name, variable in variables.items()
        }
