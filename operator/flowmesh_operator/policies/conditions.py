"""Names of the conditions of a ``FlowMeshCachePolicy`` and of their reasons."""

from enum import StrEnum


class PolicyCondition(StrEnum):
    """Condition types, for ``kubectl wait --for=condition=...``."""

    ACCEPTED = "Accepted"  # the policy is in force
    CONFLICTING = "Conflicting"  # another policy contradicts it for some of its namespaces


class PolicyReason(StrEnum):
    """Reasons of a policy's conditions."""

    VALID = "Valid"  # Accepted: nothing is wrong with it
    INVALID = "Invalid"  # not Accepted: the message says what is wrong; it is not in force
    CONTRADICTED = "Contradicted"  # Conflicting: the message names the policies and a namespace
    AGREED = "Agreed"  # not Conflicting
