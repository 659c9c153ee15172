"""Checks the state folder: rights, owner process, master keys, disk."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from flowmesh_cli.connection.owner import current
from flowmesh_cli.connection.state_dir import StateDir
from flowmesh_cli.doctor.check import Check, CheckLevel, of_error, ok, problem, warning
from flowmesh_cli.local.keys import checked_keys
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.units import bytes_text
from flowmesh_store.disk_space import FREE_BYTES_MIN

FREE_BYTES_WANTED = 4 << 30
"""Space for the results and caches of a first model; less is a warning."""
_OTHERS = 0o077
_USE = os.R_OK | os.W_OK | os.X_OK
_OTHER_FOLDER = "choose another folder with --state-dir"


def check_state_folder(state: StateDir) -> Iterator[Check]:
    """Yields the checks of a state folder; nothing is created or changed."""
    rights = check_rights(state.path)
    yield rights
    yield check_disk(state.path, shutil.disk_usage(_existing(state.path)).free)
    if rights.level is not CheckLevel.PROBLEM:
        yield check_owner(state)
        yield check_key(state)


def check_rights(folder: Path) -> Check:
    """Checks that this user can use a folder, or create it, and that others cannot."""
    name = "state folder"
    if not os.path.exists(folder):
        above = _existing(folder)
        if os.path.isdir(above) and os.access(above, _USE):
            return ok(name, f"{folder} is not there yet and can be created")
        return problem(name, f"{folder} cannot be created in {above}", _OTHER_FOLDER)
    if not folder.is_dir():
        return problem(name, f"{folder} is not a folder", _OTHER_FOLDER)
    found = folder.stat()
    if not os.access(folder, _USE):
        return problem(
            name,
            f"{folder} belongs to uid {found.st_uid} and cannot be read and written by uid"
            f" {os.geteuid()}",
            f"run fmesh as its owner, or {_OTHER_FOLDER}",
        )
    if found.st_mode & _OTHERS:
        return warning(name, f"other users may enter {folder}", f"chmod 700 {folder}")
    return ok(name, f"only this user can enter {folder}")


def check_disk(folder: Path, free_bytes: int) -> Check:
    """Checks the free space of the state folder's disk."""
    message = f"{bytes_text(free_bytes)} are free for {folder}"
    remedy = f"free space (`fmesh cache gc` deletes unreferenced content), or {_OTHER_FOLDER}"
    if free_bytes < FREE_BYTES_MIN:
        return problem("disk", f"{message}; workers leave {bytes_text(FREE_BYTES_MIN)}", remedy)
    if free_bytes < FREE_BYTES_WANTED:
        return warning("disk", message, remedy)
    return ok("disk", message)


def check_owner(state: StateDir) -> Check:
    """Checks which process serves the folder."""
    owner = current(state) if state.owner.exists() else None
    if owner is None:
        return ok("owner", "no process serves the folder")
    if owner.url:
        return ok("owner", f"process {owner.pid} serves the folder at {owner.url}")
    return warning(
        "owner",
        f"process {owner.pid} has locked the folder and does not serve it",
        f"wait until it has started, or end it: kill {owner.pid}",
    )


def check_key(state: StateDir) -> Check:
    """Checks that the master keys are there, private, and those of the folder's records."""
    name = "master key"
    try:
        ids = checked_keys(state.path)
    except FlowMeshError as e:
        return of_error(name, e)
    if not ids:
        return ok(name, "the first start creates it")
    return ok(name, f"the folder has the keys of its records ({', '.join(ids)}); back them up")


def _existing(folder: Path) -> Path:
    """Returns the folder, or the nearest one above that exists and that this user may find.

    ``os.path`` says no where ``Path`` raises: below a folder that others may not enter.
    """
    return next(path for path in (folder, *folder.parents) if os.path.exists(path))
