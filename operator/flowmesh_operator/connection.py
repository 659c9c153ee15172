"""The connection to the API server, as a pod or, outside of one, as a kubeconfig file knows it."""

import contextlib
from collections.abc import AsyncIterator

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException

from flowmesh_operator.settings import SettingsError

CONNECTIONS = 32


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[ApiClient]:
    """A client for the running event loop.

    Raises:
        SettingsError: there is neither a pod's service account nor a kubeconfig file.
    """
    found = Configuration()
    try:
        config.load_incluster_config(client_configuration=found)
    except ConfigException:
        try:
            await config.load_kube_config(client_configuration=found)
        except (ConfigException, OSError) as e:
            raise SettingsError(
                f"no pod's service account, and no kubeconfig: {e}",
                where="KUBECONFIG",
                remedy="run it in a pod, or name a kubeconfig file",
            ) from e
    found.connection_pool_maxsize = CONNECTIONS
    found.retries = None  # Api retries, within bounds that it knows
    client = ApiClient(configuration=found)
    try:
        yield client
    finally:
        await client.close()
