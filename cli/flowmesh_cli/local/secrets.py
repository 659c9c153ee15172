"""Secrets on a laptop: environment variables of whoever runs ``fmesh``."""

import os

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.spec.secrets import SecretLocation

PREFIX = "FMESH_SECRET_"


class EnvironmentSecrets:
    """Reads the secret ``hf-token`` from ``FMESH_SECRET_HF_TOKEN``."""

    async def read(self, namespace: str, names: tuple[str, ...]) -> dict[str, str]:
        """The values by name; on a laptop all namespaces belong to its user.

        Raises:
            FlowMeshError: a variable is not set.
        """
        del namespace
        plain = [SecretLocation.parse(text).name for text in names]
        variables = {name: PREFIX + name.upper().replace("-", "_") for name in plain}
        missing = [variable for variable in variables.values() if variable not in os.environ]
        if missing:
            raise FlowMeshError(
                f"not set: {', '.join(missing)}",
                where="secrets",
                remedy="export it before `fmesh run` or `fmesh up`",
            )
        return {name: os.environ[variable] for name, variable in variables.items()}
