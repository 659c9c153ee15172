"""Names of the conditions of a ``FlowMeshService`` and of their reasons."""

from enum import StrEnum


class ServiceCondition(StrEnum):
    """Condition types, for ``kubectl wait --for=condition=...``."""

    ACCEPTED = "Accepted"  # the spec is valid, and is served or will be
    READY = (
        "Ready"  # every component has a replica that takes requests, also with fewer than its least
    )
    MEETS_SLO = "MeetsSlo"  # few enough replies are late; where the service has a latency target


class ServiceReason(StrEnum):
    """Reasons of a service's conditions."""

    VALID = "Valid"  # Accepted: nothing is wrong with it
    INVALID = "Invalid"  # not Accepted: the message lists what is wrong; an older spec stays served
    REFUSED = "Refused"  # not Accepted: the message says what the namespace has too many of
    UNAVAILABLE = "Unavailable"  # not Accepted yet: the store does not answer; tried again
    IMPORTING = "Importing"  # not Ready: its models are being imported
    IMPORT_FAILED = "ImportFailed"  # not Ready: the message says why its models are not there
    REPLICAS_READY = "ReplicasReady"  # Ready: each component has at least its least number
    REPLICAS_MISSING = "ReplicasMissing"  # the message says why, in the engine's words
