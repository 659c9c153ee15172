"""Reads, creates and changes the file with the installation's master keys.

A line is ``<id>:<hex>``, the newest key first; 32 bare bytes are the key with id 00. ``fmesh``
keeps the file in the state folder; on Kubernetes it is in a Secret. A reader of the keys can forge
references to any content of any tenant and seal records, so only its owner may read the file.
"""

import contextlib
import os
import re
import secrets
from pathlib import Path

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.os_errors import store_error

KEY_BYTES = 32
FILE = "master.key"
_CURRENT = ("keys", "current")
_OTHERS = 0o077
_IDS = 256
_LINE = re.compile(rb"([0-9a-f]{2}):((?:[0-9a-f]{2})+)")


def new_ring() -> KeyRing:
    """Returns a ring of one new key."""
    return KeyRing.of(secrets.token_bytes(KEY_BYTES))


def encode_ring(ring: KeyRing) -> bytes:
    """Returns the content of the ring's file."""
    return "".join(f"{key_id}:{secret.hex()}\n" for key_id, secret in ring.secrets).encode()


def decode_ring(data: bytes, *, where: str) -> KeyRing:
    """Decodes the content of a ring's file.

    Args:
        data: lines of ``<id>:<hex>``, or one key of 32 bytes.
        where: the file, for errors.

    Raises:
        FlowMeshError: it is neither; the message shows no part of a key.
    """
    if len(data) == KEY_BYTES:
        return KeyRing.of(data)
    lines = [_LINE.fullmatch(line) for line in data.splitlines()]
    reason = f"the master key file is not lines of <id>:<hex> ({len(data)} bytes)"
    if all(lines):
        pairs = [(m[1].decode(), bytes.fromhex(m[2].decode())) for m in lines if m is not None]
        try:
            return KeyRing(tuple(pairs))
        except FlowMeshError as e:
            reason = e.message
    raise FlowMeshError(reason, where=where, remedy="restore it from a copy")


def load_key_ring(state_dir: Path) -> KeyRing:
    """Reads the ring of a state folder; creates it where the folder has never been used.

    Raises:
        FlowMeshError: others can read it, it is damaged, or it is missing from a used folder.
        StoreError: it cannot be read or created.
    """
    found = find_key_ring(state_dir)
    if found is not None:
        return found
    path = state_dir / FILE
    try:
        _create(path, encode_ring(new_ring()))
        return read_ring(path)
    except OSError as e:
        raise store_error(e, str(path)) from e


def find_key_ring(state_dir: Path) -> KeyRing | None:
    """Reads the ring of a state folder; returns None where the folder has never been used.

    Raises:
        FlowMeshError: others can read it, it is damaged, or it is missing from a used folder.
        StoreError: it cannot be read.
    """
    path = state_dir / FILE
    try:
        if path.exists():
            return read_ring(path)
        used = state_dir.joinpath(*_CURRENT).exists()
    except OSError as e:
        raise store_error(e, str(path)) from e
    if used:
        raise FlowMeshError(
            "the master key is missing, and this folder's records are sealed with it",
            where=str(path),
            remedy="restore it from a copy, or accept the loss of all results and runs:"
            " fmesh keys adopt --lose-results",
        )
    return None


def read_ring(path: Path) -> KeyRing:
    """Reads a ring's file.

    Raises:
        FlowMeshError: others can read it, or it is damaged.
        OSError: it cannot be read.
    """
    if path.stat().st_mode & _OTHERS:
        raise FlowMeshError(
            "others than its owner can read the master key",
            where=str(path),
            remedy=f"chmod 600 {path}; if others have read it, replace it: fmesh keys rotate",
        )
    return decode_ring(path.read_bytes(), where=str(path))


def with_new_key(ring: KeyRing) -> KeyRing:
    """Returns the ring with a new key in front.

    Raises:
        FlowMeshError: all ids are used.
    """
    used = {key_id for key_id, _ in ring.secrets}
    newest = int(ring.secrets[0][0], 16)
    after = ((newest + step) % _IDS for step in range(1, _IDS))
    free = next((key_id for n in after if (key_id := f"{n:02x}") not in used), None)
    if free is None:
        raise FlowMeshError("the key ring is full", remedy="retire a key: fmesh keys retire ID")
    return KeyRing(((free, secrets.token_bytes(KEY_BYTES)), *ring.secrets))


def without_key(ring: KeyRing, key_id: str) -> KeyRing:
    """Returns the ring without a key.

    Raises:
        FlowMeshError: the ring has no such key, or no other.
    """
    return KeyRing(tuple(pair for pair in ring.secrets if pair[0] != key_id))


def write_ring(path: Path, ring: KeyRing) -> None:
    """Writes a ring's file atomically, for its owner only.

    Raises:
        OSError: it cannot be written; the former file is unchanged.
    """
    temporary = _temporary(path, encode_ring(ring))
    os.replace(temporary, path)


def _create(path: Path, data: bytes) -> None:
    """Creates the file atomically; if two processes do so at once, the first wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path, data)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()


def _temporary(path: Path, data: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return temporary
