"""A host's folder, and a second one with a short path for its sockets if it needs one."""

import os
import shutil
from hashlib import blake2b
from pathlib import Path

SOCKET_NAME_BYTES = 40
SOCKET_PATH_BYTES = 107
"""The longest path that a Unix socket may have."""
_SHORT = Path("/tmp")


def socket_folder(folder: Path) -> Path:
    """Returns the folder for a host's sockets: its own, unless their paths would be too long."""
    own = os.fsencode(folder.absolute())
    if len(own) + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES:
        return folder
    return _SHORT / f"fmesh-{blake2b(own, digest_size=12).hexdigest()}"


def remove_host_folder(folder: Path) -> None:
    """Removes a host's folders; does nothing if they do not exist."""
    for path in {folder, socket_folder(folder)}:
        shutil.rmtree(path, ignore_errors=True)
