"""Leaves space free on disks that temporary copies of content share with everything else."""

import asyncio
import shutil
from pathlib import Path

from flowmesh_core.errors import StoreFullError

FREE_BYTES_MIN = 256 << 20
"""Space that temporary copies leave free on a disk to which others write as well."""


async def require_space(
    directory: Path, wanted_bytes: int, *, purpose: str = "downloads", remedy: str = "free space"
) -> None:
    """Refuses a temporary copy for which its disk has no space.

    Args:
        directory: where it will be.
        wanted_bytes: its size.
        purpose: of the copies there.
        remedy: what helps.

    Raises:
        StoreFullError: there is too little.
    """
    usage = await asyncio.to_thread(shutil.disk_usage, directory)
    if usage.free - FREE_BYTES_MIN < max(0, wanted_bytes):
        raise StoreFullError(
            f"the disk for {purpose} has only {usage.free >> 20} MiB free",
            where=str(directory),
            remedy=remedy,
        )
