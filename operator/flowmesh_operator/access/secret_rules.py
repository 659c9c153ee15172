"""What the owner of a Secret allows: the hosts and the engines that its values may be sent to.

Annotations of the Secret say it; :mod:`secrets` reads them with the value.
"""

import re
from collections.abc import Mapping

from flowmesh_core.errors import FlowMeshError

HOSTS = "flowmesh.dev/hosts"
"""Hosts, separated by commas: ``api.example.com``, or ``*.example.com`` for all below a domain."""
ENGINES = "flowmesh.dev/engines"
"""Engines, separated by commas; every engine where it is missing."""
_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LABELS_MIN = 2


def allowed_hosts(
    annotations: Mapping[str, str], namespace: str, name: str, engine: str
) -> tuple[str, ...]:
    """Returns the hosts that a Secret's values may be sent to, by this engine.

    Args:
        annotations: of the Secret.
        namespace: its namespace.
        name: its name.
        engine: the engine of the attempt.

    Raises:
        FlowMeshError: the Secret names no hosts, a malformed one, or other engines only.
    """
    where = f"secret {namespace}/{name}"
    hosts = _listed(annotations.get(HOSTS, ""))
    annotate = f"kubectl annotate secret {name} -n {namespace} --overwrite"
    if not hosts:
        raise FlowMeshError(
            f"it does not say to which hosts it may be sent (annotation {HOSTS})",
            where=where,
            remedy=f"{annotate} {HOSTS}=HOST,... (api.example.com, or *.example.com for all below)",
        )
    malformed = [host for host in hosts if not _is_host(host)]
    if malformed:
        raise FlowMeshError(
            f"its annotation {HOSTS} has {malformed[0]!r}, which is not a host",
            where=where,
            remedy="write names or addresses without scheme, port and path: api.example.com, or"
            " *.example.com for all below a domain of at least two labels",
        )
    engines = _listed(annotations.get(ENGINES, ""))
    if ENGINES in annotations and engine not in engines:
        raise FlowMeshError(
            f"it is not for {engine}: its annotation {ENGINES} lists"
            f" {', '.join(engines) or 'no engine'}",
            where=where,
            remedy=f"{annotate} {ENGINES}={','.join([*engines, engine])}",
        )
    return hosts


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for item in text.lower().split(",") if (part := item.strip()))


def _is_host(text: str) -> bool:
    if not _HOST.fullmatch(text):
        return False
    return not text.startswith("*.") or text.count(".") >= _LABELS_MIN
