"""Turns exceptions into failures: the only place where the worker chooses a failure's kind."""

import errno
import os
import traceback

from flowmesh_core.errors import (
    BY_IDENTITY,
    AttemptError,
    Failure,
    FailureKind,
    FlowMeshError,
    IdentityMismatchError,
    LostBlobError,
    StoreError,
    StoreFullError,
)
from flowmesh_core.protocol.messages import FailureReport

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_LAST_LINES = 12
FREE_SPACE = "free some space on the worker's disk or in the store, then try again"


def report(failure: Failure) -> FailureReport:
    """Returns the failure as a message of the worker protocol."""
    return FailureReport(
        kind=failure.kind.value,
        message=_as_unicode(failure.message),
        remedy=_as_unicode(failure.remedy),
        detail=_as_unicode(failure.detail),
        retry_after_s=failure.retry_after_s,
        reason=failure.reason,
    )


def engine_failure(error: BaseException, engine: str) -> FailureReport:
    """Returns the failure for an exception while an engine loads, runs or writes outputs."""
    if isinstance(error, AttemptError):
        return report(error.failure)
    if isinstance(error, IdentityMismatchError):
        return store_failure(error, f"{engine}: an input could not be read")
    if isinstance(error, StoreFullError) or _is_disk_full(error):
        message = f"{engine}: no space is left for outputs: {_as_unicode(str(error))}"
        return FailureReport(FailureKind.STORE.value, message, FREE_SPACE)
    if _is_out_of_memory(error):
        return FailureReport(
            FailureKind.OUT_OF_MEMORY.value,
            f"{engine} ran out of memory: {_short(error)}",
            "ask for more with resources.memory, or give it less at once",
            detail=traceback_lines(error),
        )
    return FailureReport(
        FailureKind.ENGINE.value,
        f"{engine} failed: {_short(error)}",
        "the traceback shows where; the action is tried on another worker as well if there is one",
        detail=traceback_lines(error),
    )


def store_failure(error: BaseException, doing: str) -> FailureReport:
    """Returns the failure for an exception while fetching inputs or storing outputs.

    Args:
        error: the exception; of a group, the first one counts.
        doing: what failed, as the beginning of the message.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, AttemptError):
        return report(error.failure)
    message = _as_unicode(error.message) if isinstance(error, FlowMeshError) else _short(error)
    message = f"{doing}: {message}"
    if isinstance(error, LostBlobError):
        kind = FailureKind.MISSING_BLOB.value
        reason = BY_IDENTITY if isinstance(error, IdentityMismatchError) else ""
        return FailureReport(kind, message, error.remedy, detail=error.digest, reason=reason)
    if isinstance(error, StoreError):
        remedy = error.remedy or (FREE_SPACE if isinstance(error, StoreFullError) else "")
        return FailureReport(
            FailureKind.STORE.value,
            f"{doing}: {_as_unicode(error.reason)}",
            _as_unicode(remedy),
            retry_after_s=error.retry_after_s,
        )
    if isinstance(error, FlowMeshError):
        return FailureReport(FailureKind.BAD_INPUT.value, message, _as_unicode(error.remedy))
    if isinstance(error, OSError):
        remedy = FREE_SPACE if error.errno in _FULL else ""
        return FailureReport(FailureKind.STORE.value, message, remedy)
    return FailureReport(FailureKind.ENGINE.value, message, detail=traceback_lines(error))


def traceback_lines(error: BaseException) -> str:
    """Returns the last lines of the error's traceback."""
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    return _as_unicode("\n".join(lines[-_LAST_LINES:]))


def _as_unicode(text: str) -> str:
    """Text that can be sent: names of files that are not UTF-8 have parts that cannot."""
    return text.encode(errors="backslashreplace").decode()


def _is_disk_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL
    # Libraries that write files themselves (safetensors, torch) raise their own types, with the
    # operating system's text.
    return any(os.strerror(code) in str(error) for code in _FULL)


def _is_out_of_memory(error: BaseException) -> bool:
    # Device libraries raise their own type; compared by name so that none is imported here.
    names = {c.__name__ for c in type(error).__mro__}
    return isinstance(error, MemoryError) or "OutOfMemoryError" in names


def _short(error: BaseException) -> str:
    text = _as_unicode(str(error)).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
