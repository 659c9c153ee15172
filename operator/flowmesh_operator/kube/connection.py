"""The connection to the API server, as a pod or, outside of one, as a kubeconfig file knows it."""

import contextlib
import os
from collections.abc import AsyncIterator

import kubernetes
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException

from flowmesh_operator.settings import SettingsError

CONNECTIONS = 32


def load_configuration() -> None:
    """Configures the client library's blocking calls, for programs that do one thing and end.

    Raises:
        SettingsError: there is neither a pod's service account nor a kubeconfig file.
    """
    try:
        kubernetes.config.load_incluster_config()
    except kubernetes.config.ConfigException:
        try:
            kubernetes.config.load_kube_config(config_file=os.environ.get("KUBECONFIG"))
        except (kubernetes.config.ConfigException, OSError) as e:
            raise _no_configuration(e) from e


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
            raise _no_configuration(e) from e
    found.connection_pool_maxsize = CONNECTIONS
    found.retries = None  # Api retries, within bounds that it knows
    client = ApiClient(configuration=found)
    try:
        yield client
    finally:
        await client.close()


def _no_configuration(e: Exception) -> SettingsError:
    return SettingsError(
        f"no pod's service account, and no kubeconfig: {e}",
        where="KUBECONFIG",
        remedy="run it in a pod, or name a kubeconfig file",
    )
