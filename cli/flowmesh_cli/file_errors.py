"""Describes files and folders that this user cannot use: path, owner and remedy.

The commands' guard calls it for errors of the operating system that nothing else has translated.
"""

import errno
import os
import pwd
from pathlib import Path

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

_NO_RIGHT = frozenset({errno.EACCES, errno.EPERM})
_WRONG_PLACE = frozenset(
    {errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
)
_OTHER_PATH = "choose another path (the state folder's with --state-dir)"


def file_error(error: OSError, path: Path | None = None) -> CliError | None:
    """Returns the error of a path that this user cannot use; None for one that may be a defect.

    Args:
        error: what the operating system said.
        path: what the user named, where that is not the path of the error.
    """
    if path is None and not isinstance(error.filename, str | bytes):
        return None
    named = path or Path(os.fsdecode(error.filename))
    if error.errno in _NO_RIGHT:
        why, remedy = _refused(named, error)
    elif error.errno in _WRONG_PLACE:
        why, remedy = error.strerror, _OTHER_PATH
    else:
        return None
    return CliError(
        f"cannot be read or written: {why}", ExitCode.USAGE, where=str(named), remedy=remedy
    )


def _refused(path: Path, error: OSError) -> tuple[str, str]:
    """Returns the reason and the remedy; ``os.path`` says no where ``Path`` raises."""
    user = _name(os.geteuid())
    there = next((p for p in (path, *path.parents) if os.path.lexists(p)), path)
    owner = _name(there.lstat().st_uid) if os.path.lexists(there) else "unknown"
    why = f"{error.strerror}; {there} belongs to {owner}, and you are {user}"
    if there != path or owner == user:
        return why, f"run fmesh as {owner}, or {_OTHER_PATH}" if owner != user else _OTHER_PATH
    return why, f"give it to you: `sudo chown -R {user} {path}`, or {_OTHER_PATH}"


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
