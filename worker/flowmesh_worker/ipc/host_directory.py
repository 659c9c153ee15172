"""A host's own folder, and the short one beside it where sockets need a shorter path."""

import os
import shutil
from hashlib import blake2b
from pathlib import Path

SOCKET_NAME_BYTES = 40
SOCKET_PATH_BYTES = 107
"""The longest path that a Unix socket may have."""
_SHORT = Path("/tmp")


def socket_folder(folder: Path) -> Path:
    """Where a host's sockets lie: in its own folder unless their paths would be too long there."""
    own = os.fsencode(folder.absolute())
    if len(own) + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES:
        return folder
    return _SHORT / f"fmesh-{blake2b(own, digest_size=12).hexdigest()}"


def remove_host_folder(folder: Path) -> None:
    """Removes all that a host has left; harmless where it is gone."""
    for path in {folder, socket_folder(folder)}:
        shutil.rmtree(path, ignore_errors=True)
