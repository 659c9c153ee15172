"""The status of a ``FlowMeshCachePolicy`` object."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.errors import SpecError
from flowmesh_core.sharing.namespace_selection import ANY_NAMESPACE, selects
from flowmesh_core.sharing.scopes import plan_scopes
from flowmesh_core.spec.policy_status import NAMESPACES_SHOWN
from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext
from flowmesh_operator.policies.conditions import PolicyCondition, PolicyReason
from flowmesh_operator.workflows.submission import words

MOST_CHARS = 16_384
"""Limit of a message; the API server accepts 32,768 bytes."""

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
    return _status(covered, conditions, context)


def of_invalid(message: str, context: StatusContext) -> Json:
    """Returns the status of a policy that is not in force, given what is wrong with it."""
    refused = ConditionUpdate(PolicyCondition.ACCEPTED, False, PolicyReason.INVALID, message)
    return _status([], [refused], context)


def _status(
    covered: Sequence[str], conditions: Iterable[ConditionUpdate], context: StatusContext
) -> Json:
    return {
        "covered": len(covered),
        "namespaces": list(covered[:NAMESPACES_SHOWN]),
        "observedGeneration": context.generation,
        "epoch": context.epoch,
        "conditions": context.conditions(conditions, most_chars=MOST_CHARS),
    }


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
