"""Names of the conditions of a ``FlowMeshWorkerPool`` and of their reasons."""

from enum import StrEnum


class PoolCondition(StrEnum):
    """Condition types, for ``kubectl wait --for=condition=...``."""

    ACCEPTED = "Accepted"  # the pool is valid and its objects are applied
    READY = "Ready"  # as many workers are connected as wanted
    SCALING = "Scaling"  # the operator or an autoscaler sets the number of workers
    WORKER_DISTRUSTED = "WorkerDistrusted"  # a worker is cordoned because it breaks the protocol


class PoolReason(StrEnum):
    """Reasons of a pool's conditions."""

    APPLIED = "Applied"  # Accepted: every object of the pool exists
    INVALID = "Invalid"  # not Accepted: the message names the field and the change to make
    REFUSED = "Refused"  # not Accepted: the API server refused an object; the message is its own
    WORKERS_CONNECTED = "WorkersConnected"  # Ready
    WORKERS_STARTING = "WorkersStarting"  # not Ready: pods are starting
    WORKERS_STUCK = "WorkersStuck"  # not Ready: pods do not start; the message says what is known
    UNSCHEDULABLE = "Unschedulable"  # not Ready: no node takes a pod, in the scheduler's words
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"  # not Ready: an image cannot be pulled
    ERR_IMAGE_PULL = "ErrImagePull"  # not Ready: an image could not be pulled just now
    ERR_IMAGE_NEVER_PULL = "ErrImageNeverPull"  # not Ready: an image is not on the node
    INVALID_IMAGE_NAME = "InvalidImageName"  # not Ready: spec.image is not the name of an image
    CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError"  # not Ready: pods lack a Secret
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"  # not Ready: workers end soon after they start
    STORE_UNREACHABLE = "StoreUnreachable"  # not Ready: workers take no work without the store
    BY_BACKLOG = "ByBacklog"  # Scaling: the operator scales by the predicted work
    BY_HPA = "ByHpa"  # Scaling: a HorizontalPodAutoscaler scales by the operator's metric
    BY_KEDA = "ByKeda"  # Scaling: a ScaledObject scales by the operator's metric
    FIXED = "Fixed"  # not Scaling: spec.autoscaling.mode is fixed
    HPA_INACTIVE = "HpaInactive"  # not Scaling: the message is the HorizontalPodAutoscaler's
    KEDA_INACTIVE = "KedaInactive"  # not Scaling: the message is KEDA's, or KEDA has not acted yet
    PROTOCOL_VIOLATIONS = "ProtocolViolations"  # WorkerDistrusted: the message names the workers
    NO_VIOLATIONS = "NoViolations"  # not WorkerDistrusted
    NO_KEDA = "NoKeda"  # not Scaling: mode is keda, and KEDA is missing or not enabled
