"""The status of a ``FlowMeshCachePolicy`` object."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.errors import SpecError
from flowmesh_core.sharing.namespace_selection import ANY_NAMESPACE, selects
from flowmesh_core.sharing.scopes import plan_scopes
from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext
from flowmesh_operator.kube.namespaces_status import namespaces_status
from flowmesh_operator.policies.conditions import PolicyCondition, PolicyReason
from flowmesh_operator.workflows.submission import words

Json = dict[str, Any]
Namespaces = Mapping[str, Mapping[str, str]]
"""The labels of each namespace."""


def of_policy(
    policy: CachePolicy,
    others: Sequence[CachePolicy],
    namespaces: Namespaces,
    context: StatusContext,
) -> Json:
    """Returns the status of a policy that is in force.

    Args:
        policy: the policy.
        others: all policies, this one among them.
        namespaces: of the cluster.
        context: the object that the status is for.
    """
    covered = [name for name in sorted(namespaces) if selects(policy, name, namespaces[name])]
    named: Namespaces = {name: {} for name in policy.namespaces if name != ANY_NAMESPACE}
    conflict = _conflict(policy, others, {**named, **namespaces})
    conditions = [
        ConditionUpdate(PolicyCondition.ACCEPTED, True, PolicyReason.VALID),
        ConditionUpdate(
            PolicyCondition.CONFLICTING,
            bool(conflict),
            PolicyReason.CONTRADICTED if conflict else PolicyReason.AGREED,
            conflict,
        ),
    ]
    return namespaces_status(covered, conditions, context)


def of_invalid(message: str, context: StatusContext) -> Json:
    """Returns the status of a policy that is not in force, given what is wrong with it."""
    refused = ConditionUpdate(PolicyCondition.ACCEPTED, False, PolicyReason.INVALID, message)
    return namespaces_status([], [refused], context)


def _conflict(policy: CachePolicy, others: Sequence[CachePolicy], namespaces: Namespaces) -> str:
    """Returns the contradictions between a policy and others, one a line."""
    found = []
    for name in sorted(namespaces):
        if not selects(policy, name, namespaces[name]):
            continue
        try:
            plan_scopes(others, name, namespaces[name])
        except SpecError as e:
            found.append(words(e))
    return "\n".join(found)
