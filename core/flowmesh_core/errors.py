"""The error tree, and failures as data.

::

    FlowMeshError
    ├── SpecError            the user's file or resource is wrong; carries every problem found
    ├── IdentityError        a value has no canonical form
    ├── InvalidReferenceError  a reference is malformed, unknown, or not valid for this scope
    ├── StoreError
    │   ├── LostBlobError           names the blob
    │   │   ├── BlobNotFoundError
    │   │   └── BlobCorruptError
    │   │       └── IdentityMismatchError  intact bytes that are not what their identity says
    │   ├── ConditionFailedError   a conditional write lost (412)
    │   ├── DamagedRecordError     a stored record cannot be read; names its key
    │   ├── StoreAccessError       the store may only be read, or not even that
    │   ├── StoreFullError         the disk or the quota is full
    │   └── StoreUnavailableError  retryable
    ├── ProtocolError        a message is malformed or of another version or epoch
    ├── InvariantError       a transition that the table does not allow; lists the run's transitions
    └── AttemptError         an attempt failed; carries a Failure

Errors are translated to exit codes, HTTP statuses and kopf's errors only at the edges.
"""

from dataclasses import dataclass

from flowmesh_api.v1.enums import FailureKind as FailureKind  # noqa: PLC0414 - for plugins
from flowmesh_api.v1.problems import Problem

BY_IDENTITY = "identity"
"""The reason of a failure where content is not what its identity says."""

_RETRYABLE = frozenset(
    {
        FailureKind.LOST,
        FailureKind.PREEMPTED,
        FailureKind.DRAINED,
        FailureKind.OUT_OF_MEMORY,
        FailureKind.HOST_CRASHED,
        FailureKind.ENGINE,
        FailureKind.STORE,
        FailureKind.MISSING_BLOB,
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure as data: what happened, where, and what to do about it.

    Attributes:
        kind: the class of failure; decides retries and who pays.
        message: one or two sentences for the user, without a stack trace.
        remedy: what to try; may be empty.
        detail: the last lines of the log or of the traceback; for ``missing-blob`` the digests of
            the blobs, separated by spaces.
        retry_after_s: the earliest time to retry, in seconds from now.
        reason: narrower than the kind: ``identity`` where a blob is intact and its content is not
            what its identity says; else empty.
    """

    kind: FailureKind
    message: str
    remedy: str = ""
    detail: str = ""
    retry_after_s: float = 0.0
    reason: str = ""

    @property
    def retryable(self) -> bool:
        """Whether another attempt may end differently."""
        return self.kind in _RETRYABLE


class FlowMeshError(Exception):
    """The root of all errors raised by FlowMesh.

    Attributes:
        where: the place, such as ``spec.steps[3].inputs.model``; may be empty.
        remedy: what to do; may be empty.
        retryable: whether the same call may succeed later.
        retry_after_s: the earliest time to retry, in seconds from now.
    """

    retryable = False
    retry_after_s = 0.0

    def __init__(self, message: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.remedy = remedy

    @property
    def reason(self) -> str:
        """Place and reason without the remedy, for texts that show the remedy separately."""
        return f"{self.where}: {self.message}" if self.where else self.message

    def __str__(self) -> str:
        """Returns place, reason and remedy in one line."""
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


class SpecError(FlowMeshError):
    """A workflow or policy that cannot be accepted, with every problem found (at least one)."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(f"{p.path}: {p.message}" for p in problems))
        self.problems = problems


class IdentityError(FlowMeshError):
    """A value that has no canonical form, such as NaN or an integer beyond 64 bits."""


class RevokedContentError(FlowMeshError):
    """Content that was revoked, or what was made from it."""


class ContentLimitError(IdentityError):
    """A user's content that is larger, wider or nested deeper than the limits."""


class InvalidReferenceError(FlowMeshError):
    """A ``cas:`` reference that is malformed or not valid for this scope."""


class StoreError(FlowMeshError):
    """The store could not do what was requested."""


class LostBlobError(StoreError):
    """A blob is missing or corrupt; the step that made it can reproduce it.

    Attributes:
        digest: the blob; empty where it is not known.
    """

    def __init__(
        self, message: str, *, digest: str = "", where: str = "", remedy: str = ""
    ) -> None:
        super().__init__(message, where=where, remedy=remedy)
        self.digest = digest


class BlobNotFoundError(LostBlobError):
    """No blob of this digest."""


class BlobCorruptError(LostBlobError):
    """The bytes read do not have the digest they are stored under."""


class IdentityMismatchError(BlobCorruptError):
    """The content of a blob is not that of the identity by which it is used."""

    def __init__(self, message: str, blob: str) -> None:
        """Names the blob; the step whose result pairs it with the identity runs again.

        Args:
            message: what differs.
            blob: the digest of the blob, whose bytes are intact.
        """
        super().__init__(
            message,
            digest=blob,
            where=f"cas/{blob}",
            remedy="the step that produced it runs again; upload it again where no step did",
        )


class ConditionFailedError(StoreError):
    """A conditional write found another version (HTTP 412)."""


class DamagedRecordError(StoreError):
    """A stored record is not what its key says: cut off, corrupt, or written by something else.

    Attributes:
        key: of the record; also ``where``.
    """

    def __init__(self, key: str, message: str, *, remedy: str = "") -> None:
        super().__init__(f"the record cannot be read: {message}", where=key, remedy=remedy)
        self.key = key


class StoreAccessError(StoreError):
    """The system refused: the store is read-only, or this user may not read or write it."""


class StoreFullError(StoreError):
    """No space is left."""


class StoreUnavailableError(StoreError):
    """The store did not answer; the call may be repeated."""

    retryable = True
    retry_after_s = 1.0


class ProtocolError(FlowMeshError):
    """A message that is malformed, or of another version or epoch."""


class InvariantError(FlowMeshError):
    """A transition that the table does not allow. The message lists the run's transitions."""


class AttemptError(FlowMeshError):
    """Raised by an engine to end its attempt with a failure of a chosen kind."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message, remedy=failure.remedy)
        self.failure = failure
