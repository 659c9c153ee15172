"""The status of a ``FlowMeshQuota`` object."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_api.v1.quotas import Quota
from flowmesh_core.sharing.namespace_selection import most_specific, selects
from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext
from flowmesh_operator.kube.namespaces_status import namespaces_status
from flowmesh_operator.quotas.conditions import QuotaCondition, QuotaReason

Json = dict[str, Any]
Namespaces = Mapping[str, Mapping[str, str]]
"""The labels of each namespace."""


def of_quota(
    quota: Quota, others: Sequence[Quota], namespaces: Namespaces, context: StatusContext
) -> Json:
    """Returns the status of a quota that is in force.

    Args:
        quota: the quota.
        others: all quotas, this one among them.
        namespaces: of the cluster.
        context: the object that the status is for.
    """
    covered, others_by_name = [], dict[str, str]()
    for name in sorted(namespaces):
        if not selects(quota, name, namespaces[name]):
            continue
        applies = most_specific(others, name, namespaces[name])
        if applies is None or applies.name == quota.name:
            covered.append(name)
        else:
            others_by_name.setdefault(applies.name, name)
    said = ", ".join(f"{other} (to {name})" for other, name in others_by_name.items())
    overridden = ConditionUpdate(
        QuotaCondition.OVERRIDDEN,
        bool(others_by_name),
        QuotaReason.MORE_SPECIFIC if others_by_name else QuotaReason.APPLIES,
        f"another quota applies: {said}" if said else "",
    )
    accepted = ConditionUpdate(QuotaCondition.ACCEPTED, True, QuotaReason.VALID)
    return namespaces_status(covered, [accepted, overridden], context)


def of_invalid(message: str, context: StatusContext) -> Json:
    """Returns the status of a quota that bounds nothing, given what is wrong with it."""
    refused = ConditionUpdate(QuotaCondition.ACCEPTED, False, QuotaReason.INVALID, message)
    return namespaces_status([], [refused], context)
