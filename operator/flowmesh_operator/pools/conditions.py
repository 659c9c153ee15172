"""Names of the conditions of a ``FlowMeshWorkerPool`` and of their reasons."""

from enum import StrEnum


class PoolCondition(StrEnum):
    """What can be waited for with ``kubectl wait --for=condition=...``."""

    ACCEPTED = "Accepted"  # the pool was checked, and its objects are as it says
    READY = "Ready"  # as many workers are connected as there should be
    SCALING = "Scaling"  # somebody brings the number of workers to what is wanted


class PoolReason(StrEnum):
    """Why a condition of a pool is as it is."""

    APPLIED = "Applied"  # Accepted: every object of the pool is there
    INVALID = "Invalid"  # not Accepted: the message says which field and what to change
    REFUSED = "Refused"  # not Accepted: the API server took an object not; the message is its own
    WORKERS_CONNECTED = "WorkersConnected"  # Ready
    WORKERS_STARTING = "WorkersStarting"  # not Ready: pods are on their way
    WORKERS_STUCK = "WorkersStuck"  # not Ready: pods do not come up; the message says what is known
    BY_BACKLOG = "ByBacklog"  # Scaling: the operator scales by the predicted work
    BY_HPA = "ByHpa"  # Scaling: a HorizontalPodAutoscaler does, on the operator's metric
    BY_KEDA = "ByKeda"  # Scaling: a ScaledObject does, on the operator's metric
    FIXED = "Fixed"  # not Scaling: spec.autoscaling.mode is fixed
    HPA_INACTIVE = "HpaInactive"  # not Scaling: the HorizontalPodAutoscaler says why
    KEDA_INACTIVE = "KedaInactive"  # not Scaling: KEDA says why, or has not looked yet
    NO_KEDA = "NoKeda"  # not Scaling: mode is keda and the cluster has none, or it is not set up
