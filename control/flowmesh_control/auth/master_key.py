"""Reads or creates the master key of references: 32 random bytes in the state directory.

Called by ``fmesh up``; on Kubernetes the operator reads the key from a Secret. A reader of the key
can forge references to any content of any tenant, so the file is readable for its owner only.
"""

import contextlib
import os
import secrets
from pathlib import Path

from flowmesh_core.errors import FlowMeshError
from flowmesh_store.os_errors import store_error

KEY_BYTES = 32
_FILE = "master.key"
_OTHERS = 0o077


def load_master_key(state_dir: Path) -> bytes:
    """Reads the key, or creates it where there is none.

    Raises:
        FlowMeshError: others can read it, it is damaged, or it cannot be read or created.
    """
    path = state_dir / _FILE
    try:
        return _read(path)
    except OSError as e:
        raise store_error(e, str(path)) from e


def _read(path: Path) -> bytes:
    if not path.exists():
        _make(path)
    if path.stat().st_mode & _OTHERS:
        raise FlowMeshError(
            "the master key of references is readable for others than its owner",
            where=str(path),
            remedy=f"chmod 600 {path}; if others did read it, use a new state folder",
        )
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise FlowMeshError(
            f"the master key has {len(key)} bytes instead of {KEY_BYTES}",
            where=str(path),
            remedy="restore it from a copy; without it this folder's references are invalid: use"
            " a new state folder",
        )
    return key


def _make(path: Path) -> None:
    """Creates the key atomically; if two processes do so at once, the first wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{_FILE}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
