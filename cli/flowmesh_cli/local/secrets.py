"""Secrets of a local fabric, from the environment variables of ``fmesh``."""

import os

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.spec.secrets import SecretLocation

PREFIX = "FMESH_SECRET_"


class EnvironmentSecrets:
    """Reads the secret ``hf-token`` from ``FMESH_SECRET_HF_TOKEN``."""

    async def read(self, namespace: str, names: tuple[str, ...]) -> dict[str, str]:
        """Returns the values by name; locally all namespaces belong to the user.

        Raises:
            FlowMeshError: a variable is not set.
        """
        del namespace
        bare_names = [SecretLocation.parse(text).name for text in names]
        variables = {name: PREFIX + name.upper().replace("-", "_") for name in bare_names}
        missing = [variable for variable in variables.values() if variable not in os.environ]
        if missing:
            raise FlowMeshError(
                f"not set: {', '.join(missing)}",
                where="secrets",
                remedy="export each of them before `fmesh run` or `fmesh up`",
            )
        return {name: os.environ[variable] for name, variable in variables.items()}
