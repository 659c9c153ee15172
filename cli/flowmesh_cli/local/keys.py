"""Checks and changes the master keys of a state folder."""

import asyncio
from pathlib import Path

from flowmesh_control.auth.master_key import (
    FILE,
    find_key_ring,
    new_ring,
    read_ring,
    with_new_key,
    without_key,
    write_ring,
)
from flowmesh_control.records.current_keys import adopt_keys, read_keys
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.os_errors import store_error
from flowmesh_store.store import open_store


def checked_keys(folder: Path) -> tuple[str, ...]:
    """Returns the ids of a folder's keys; none where it has never been used. Changes nothing.

    Raises:
        FlowMeshError: others can read the keys, or they are damaged, missing, or not those of the
            folder's records.
    """
    ring = find_key_ring(folder)
    if ring is None:
        return ()
    store = open_store(folder)
    try:
        asyncio.run(read_keys(store.records, ring))
    finally:
        store.close()
    return tuple(key_id for key_id, _ in ring.secrets)


def add_key(path: Path) -> str:
    """Adds a new key to a key ring file; returns its id.

    Raises:
        FlowMeshError: the file is missing or damaged, or cannot be written.
    """
    try:
        ring = with_new_key(read_ring(path))
        write_ring(path, ring)
    except OSError as e:
        raise store_error(e, str(path)) from e
    return ring.secrets[0][0]


def remove_key(folder: Path, key_id: str) -> None:
    """Removes a key from the file of a state folder.

    Raises:
        FlowMeshError: the file cannot be read or written.
    """
    path = folder / FILE
    try:
        write_ring(path, without_key(read_ring(path), key_id))
    except OSError as e:
        raise store_error(e, str(path)) from e


def adopt_folder(folder: Path) -> tuple[str, ...]:
    """Makes the keys in a state folder its store's keys, and a new one where the file is missing.

    Returns:
        The ids of the lost keys.

    Raises:
        FlowMeshError: a file cannot be read or written.
    """
    path = folder / FILE
    try:
        if path.exists():
            ring = read_ring(path)
        else:
            ring = _unlike_the_lost()
            write_ring(path, ring)
    except OSError as e:
        raise store_error(e, str(path)) from e
    store = open_store(folder)
    try:
        return asyncio.run(adopt_keys(store.records, ring))
    finally:
        store.close()


def _unlike_the_lost() -> KeyRing:
    """Returns a new key with another id than that of a folder's first key."""
    return KeyRing(with_new_key(new_ring()).secrets[:1])
