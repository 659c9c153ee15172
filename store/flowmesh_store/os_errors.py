"""Translates errors of the operating system into errors of the store."""

import errno

from flowmesh_core.errors import (
    StoreAccessError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)
from flowmesh_store.regular_files import is_loop_above

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_CLASH = frozenset({errno.ENOTDIR, errno.EISDIR})


def store_error(error: OSError, where: str) -> StoreError:
    """Returns the store's error for an operating system's.

    Args:
        error: what was raised.
        where: the file or key of the operation.
    """
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return StoreFullError(
            f"no space is left ({reason})",
            where=where,
            remedy="free space or raise the quota; `fmesh cache gc` deletes unreferenced content",
        )
    if error.errno in _REFUSED:
        problem = "the store is read-only" if error.errno == errno.EROFS else "access was refused"
        return StoreAccessError(
            f"{problem} ({reason})",
            where=where,
            remedy="let the user that runs FlowMesh read and write the store's directory",
        )
    if error.errno in _CLASH:
        return StoreError(
            f"a key cannot be the beginning of another key ({reason})",
            where=where,
            remedy="give the record a key of its own",
        )
    if error.errno == errno.ELOOP and not is_loop_above(error):
        return StoreError(
            "a link is in the place of one of the store's files",
            where=where,
            remedy="put back the file, or remove the link",
        )
    return StoreUnavailableError(
        reason,
        where=where,
        remedy="check that the store's disk is mounted and answers, then try again",
    )
