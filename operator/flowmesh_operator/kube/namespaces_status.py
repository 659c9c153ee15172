"""The status of an object that selects namespaces: how many, the first of them, and conditions."""

from collections.abc import Iterable, Sequence
from typing import Any

from flowmesh_core.spec.namespaces_status import NAMESPACES_SHOWN
from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext

MOST_CHARS = 16_384
"""Limit of a message; the API server accepts 32,768 bytes."""


def namespaces_status(
    covered: Sequence[str], conditions: Iterable[ConditionUpdate], context: StatusContext
) -> dict[str, Any]:
    """Returns the status.

    Args:
        covered: the namespaces, by name.
        conditions: of the object.
        context: the object that the status is for.
    """
    return {
        "covered": len(covered),
        "namespaces": list(covered[:NAMESPACES_SHOWN]),
        "observedGeneration": context.generation,
        "epoch": context.epoch,
        "conditions": context.conditions(conditions, most_chars=MOST_CHARS),
    }
