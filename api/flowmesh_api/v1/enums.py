"""The words that responses use for states, kinds and causes.

Most fields are plain strings, so that a client reads what a newer server adds.
"""

from enum import StrEnum


class StepState(StrEnum):
    """The state of a step of a run."""

    PENDING = "PENDING"
    READY = "READY"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class Phase(StrEnum):
    """The phase of a run."""

    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


ENDED_PHASES = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})
"""The phases that a run does not leave."""


class ActionState(StrEnum):
    """The state of an action between being named and being published."""

    LOOKING_UP = "looking-up"
    READY = "ready"
    RUNNING = "running"
    PUBLISHING = "publishing"
    DONE = "done"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class HitKind(StrEnum):
    """How a step or a chunk got a result that its run did not execute alone."""

    PUBLISHED = "published"
    IN_FLIGHT = "in-flight"
    STEP_LEVEL = "step-level"


class FailureKind(StrEnum):
    """Why an attempt, step or run failed."""

    LOST = "lost"
    PREEMPTED = "preempted"
    DRAINED = "drained"
    OUT_OF_MEMORY = "out-of-memory"
    HOST_CRASHED = "host-crashed"
    ENGINE = "engine"
    BAD_INPUT = "bad-input"
    USER_CODE = "user-code"
    TIMEOUT = "timeout"
    STORE = "store"
    MISSING_BLOB = "missing-blob"
    POISON = "poison"
    BUDGET = "budget"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    UPSTREAM = "upstream"
    UNPLACEABLE = "unplaceable"
    REVOKED = "revoked"


class RejectionCause(StrEnum):
    """Why a ready action was not placed in a scheduling cycle."""

    NO_WORKERS = "no-workers"
    ENGINE_NOT_OFFERED = "engine-not-offered"
    VERSION_NOT_OFFERED = "version-not-offered"
    VARIANT_UNSUPPORTED = "not-honoured"
    MEMORY = "memory"
    DEVICES = "devices"
    LABELS = "labels"
    USER_CODE = "user-code"
    SANDBOX = "sandbox"
    TENANT = "tenant"
    NOT_BUILT_IN = "not-built-in"
    TRUST = "trust"
    RESERVED = "reserved"
    USER_CODE_QUOTA = "user-code-quota"
    WORKER_QUOTA = "worker-quota"
    DOLLAR_QUOTA = "dollar-quota"
    STORAGE_QUOTA = "storage-quota"
    BUSY = "busy"
    DRAINING = "draining"
    BACKOFF = "backoff"
    BUDGET = "budget"
    SUSPENDED = "suspended"


class Verdict(StrEnum):
    """The outcome of an audited action."""

    SAME = "same"
    DIFFERS = "differs"
    FAILED = "failed"
    NOT_CHECKABLE = "not-checkable"


class PrefixCache(StrEnum):
    """With whom a namespace shares the prefix caches of engines."""

    PRIVATE = "private"
    SHARED = "shared"


class Disclosure(StrEnum):
    """Whether namespaces learn whose results they get."""

    OPEN = "open"
    UNATTRIBUTED = "unattributed"


class Sharing(StrEnum):
    """With which namespaces a cache policy shares results."""

    PRIVATE = "private"
    GROUP = "group"
    ALL = "all"
