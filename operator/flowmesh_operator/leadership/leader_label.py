"""The label by which the gateway's Service finds the leader's pod.

Readiness cannot express it: standbys are ready too, or ``helm --wait`` would never return.
"""

import logging

from flowmesh_operator.kube.client import NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.kinds import PODS
from flowmesh_operator.settings import OperatorSettings

log = logging.getLogger("flowmesh.operator")

LEADER_LABEL = "flowmesh.dev/leader"


async def take_label(api: KubeClient, settings: OperatorSettings) -> None:
    """Sets the label on this replica's pod and removes it from every other pod.

    Raises:
        ApiError: a pod cannot be read or patched.
    """
    if not settings.pod_name:
        return
    await _set(api, settings, settings.pod_name, "true")
    selector = f"{settings.pod_selector},{LEADER_LABEL}"
    for pod in await api.list(
        *PODS, settings.namespace, label_selector=selector, metadata_only=True
    ):
        name = pod["metadata"]["name"]
        if name != settings.pod_name:
            await _set(api, settings, name, None)


async def _set(api: KubeClient, settings: OperatorSettings, pod: str, value: str | None) -> None:
    body = {"metadata": {"labels": {LEADER_LABEL: value}}}
    try:
        await api.patch(*PODS, settings.namespace, pod, body)
    except ApiError as e:
        if e.status != NOT_FOUND or pod == settings.pod_name:
            raise
        log.debug("pod %s no longer exists", pod)
