"""Registers the watches with kopf: each event of a watched kind goes to the informer cache.

Only event handlers are registered, because with them kopf writes nothing to users' objects: no
finalizer, no annotation, no diff base. The controllers decide what a change requires.
"""

from collections.abc import Callable
from typing import Any

import kopf

from flowmesh_operator.kube.kinds import MIRRORED

Seen = Callable[[str, str | None, dict[str, Any]], None]
"""Called with a kind, the type of an event, and the object."""


def registry_of(seen: Seen) -> kopf.OperatorRegistry:
    """Returns kopf handlers that pass every event to ``seen``.

    Args:
        seen: called in kopf's thread.
    """
    registry = kopf.OperatorRegistry()

    async def watched(event: Any, param: Any, **_: Any) -> None:
        seen(param, event["type"], event["object"])

    for name, (group, version, plural) in MIRRORED.items():
        where = {"group": group, "version": version, "plural": plural}
        kopf.on.event(**where, registry=registry, id=name, param=name)(watched)
    kopf.on.login(registry=registry, id="pod")(kopf.login_with_service_account)
    kopf.on.login(registry=registry, id="kubeconfig")(kopf.login_with_kubeconfig)
    return registry
