"""Describes files and folders that this user cannot use: reason, owner and remedy.

Called for errors of the operating system that nothing else has translated.
"""

import errno
import os
import pwd
from pathlib import Path
from typing import NamedTuple

_NO_RIGHT = frozenset({errno.EACCES, errno.EPERM})
_WRONG_PLACE = frozenset(
    {errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
)
_OTHER_PATH = "choose another path (the state folder's with --state-dir)"


class UnusablePath(NamedTuple):
    """A path that this user cannot use, why, and what helps."""

    path: Path
    reason: str
    remedy: str


def unusable_path(error: OSError, named: Path | None = None) -> UnusablePath | None:
    """Returns the path that an error is about; None for an error that may be a defect.

    Args:
        error: what the operating system said.
        named: what the user named, where that is not the path of the error.
    """
    if named is None and not isinstance(error.filename, str | bytes):
        return None
    path = named or Path(os.fsdecode(error.filename))
    reason = error.strerror or str(error)
    if error.errno in _NO_RIGHT:
        return _refused(path, reason)
    return UnusablePath(path, reason, _OTHER_PATH) if error.errno in _WRONG_PLACE else None


def _refused(path: Path, reason: str) -> UnusablePath:
    """Names the owner of the path, or of the nearest folder above that this user may find.

    ``os.path`` says no where ``Path`` raises.
    """
    there = next(p for p in (path, *path.absolute().parents) if os.path.lexists(p))
    owner, user = _name(there.lstat().st_uid), _name(os.geteuid())
    remedy = _OTHER_PATH
    if owner != user and there == path:
        remedy = f"give it to you: `sudo chown -R {user} {path}`, or {remedy}"
    elif owner != user:
        remedy = f"run fmesh as {owner}, or {remedy}"
    return UnusablePath(path, f"{reason}; {there} belongs to {owner}, and you are {user}", remedy)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
