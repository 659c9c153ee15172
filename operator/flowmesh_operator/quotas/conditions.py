"""Names of the conditions of a ``FlowMeshQuota`` and of their reasons."""

from enum import StrEnum


class QuotaCondition(StrEnum):
    """Condition types, for ``kubectl wait --for=condition=...``."""

    ACCEPTED = "Accepted"  # the quota is in force
    OVERRIDDEN = "Overridden"  # to some of the namespaces that it selects another quota applies


class QuotaReason(StrEnum):
    """Reasons of a quota's conditions."""

    VALID = "Valid"  # Accepted: nothing is wrong with it
    INVALID = "Invalid"  # not Accepted: the message says what is wrong; it bounds nothing
    MORE_SPECIFIC = "MoreSpecific"  # Overridden: the message names the quotas and a namespace
    APPLIES = "Applies"  # not Overridden
