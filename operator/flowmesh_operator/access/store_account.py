"""Follows the Secret with the bucket's account, which a process has in its environment.

Kubernetes sets environment variables when a container starts and never after, but it brings a
mounted Secret up to date. So the Secret is mounted too: when its content has changed, the process
ends and the kubelet starts the container again, with the new account.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

LOOK_EVERY_S = 5.0
log = logging.getLogger("flowmesh.operator")


async def account_changed(
    folder: Path | None, environment: Mapping[str, str], *, look_every_s: float = LOOK_EVERY_S
) -> None:
    """Returns when the mounted account is another one than this process has; else never.

    Args:
        folder: with a file for each key of the Secret; None for no Secret.
        environment: the process's variables.
        look_every_s: pause between two looks.
    """
    if folder is None:
        await asyncio.Event().wait()
        return
    # The variables are never older than the files: files that stay as they are say nothing new.
    first = _read(folder)
    while True:
        await asyncio.sleep(look_every_s)
        found = _read(folder)
        changed = [name for name in found if found[name] != environment.get(name)]
        if found != first and changed:
            log.warning("%s: %s changed; this process ends to use it", folder, ", ".join(changed))
            return


def _read(folder: Path) -> dict[str, str]:
    """Reads the keys of a mounted Secret; those that are being replaced are left out."""
    found = {}
    for file in sorted(folder.glob("[!.]*")):
        try:
            found[file.name] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
    return found
