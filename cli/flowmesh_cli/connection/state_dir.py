"""The folder of a laptop's fabric: the store, who owns it now, and what its workers keep.

::

    .flowmesh/owner      who serves it: pid, address, tokens; locked by the owner while it lives
    .flowmesh/joined     locked by every `fmesh run` that uses it
    .flowmesh/master.key what references are made with
    .flowmesh/workers/   caches and logs of the local workers
    .flowmesh/…          everything else is the store
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

VARIABLE = "FLOWMESH_STATE_DIR"
DEFAULT = ".flowmesh"


@dataclass(frozen=True, slots=True)
class StateDir:
    """Paths inside the folder.

    Attributes:
        worker_root: where workers keep theirs instead, since the folder cannot be written.
    """

    path: Path
    worker_root: Path | None = None

    @property
    def owner(self) -> Path:
        """Names the owner; the owner holds its lock."""
        return self.path / "owner"

    @property
    def joined(self) -> Path:
        """Locked, shared, by everyone who uses the fabric."""
        return self.path / "joined"

    def worker(self, name: str) -> Path:
        """A local worker's cache and log."""
        return (self.worker_root or self.path) / "workers" / name

    def exists(self) -> bool:
        """Whether anything ever ran here."""
        return (self.path / "runs").is_dir() or self.owner.exists()

    def prepare(self) -> None:
        """Makes the folder, closed to others, and keeps it out of version control.

        Raises:
            CliError: it cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            raise CliError(
                f"cannot make the state folder: {e.strerror}",
                ExitCode.USAGE,
                where=str(self.path),
                remedy="choose another one with --state-dir",
            ) from e
        ignore = self.path / ".gitignore"
        with contextlib.suppress(OSError):  # a folder that can only be read is left as it is
            if not ignore.exists():
                ignore.write_text("*\n")


def state_dir(given: Path | None) -> StateDir:
    """The folder that is meant: the option, the environment's, or ``.flowmesh`` here."""
    chosen = given or Path(os.environ.get(VARIABLE) or DEFAULT)
    return StateDir(chosen.absolute())
