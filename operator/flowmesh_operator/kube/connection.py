"""Connects to the API server: in a pod by its service account, elsewhere by a kubeconfig file."""

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
    """Configures the client library's blocking calls, for short programs (bootstrap, crds).

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
    """Opens a client for the running event loop; closes it at the end of the block.

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
    found.retries = None  # KubeClient retries, within its own bounds
    client = ApiClient(configuration=found)
    try:
        yield client
    finally:
        await client.close()


def _no_configuration(e: Exception) -> SettingsError:
    return SettingsError(
        f"found neither a pod's service account nor a kubeconfig file: {e}",
        where="KUBECONFIG",
        remedy="run it in a pod, or name a kubeconfig file",
    )
