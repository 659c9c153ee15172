"""The state folder of a local fabric: the store, its owner, and its workers' caches.

::

    .flowmesh/owner      the owner's pid, address and tokens; locked by the owner while it lives
    .flowmesh/joined     locked by every `fmesh run` that uses the fabric
    .flowmesh/master.key the master keys, which seal the records and sign references
    .flowmesh/workers/   caches and logs of the local workers
    .flowmesh/…          everything else is the store
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from flowmesh_cli.errors import CliError, path_error
from flowmesh_cli.exit_codes import ExitCode

VARIABLE = "FLOWMESH_STATE_DIR"
DEFAULT = ".flowmesh"


@dataclass(frozen=True, slots=True)
class StateDir:
    """Paths inside the folder.

    Attributes:
        worker_root: the folder for workers' files where the state folder cannot be written.
    """

    path: Path
    worker_root: Path | None = None

    @property
    def owner(self) -> Path:
        """The file that names the owner, which has its lock."""
        return self.path / "owner"

    @property
    def joined(self) -> Path:
        """The file on which every user of the fabric has a shared lock."""
        return self.path / "joined"

    def worker(self, name: str) -> Path:
        """Returns the folder of a local worker's cache and log."""
        return (self.worker_root or self.path) / "workers" / name

    def exists(self) -> bool:
        """Returns whether the folder has been used by a fabric.

        Raises:
            CliError: this user may not look.
        """
        try:
            return (self.path / "runs").is_dir() or self.owner.exists()
        except OSError as e:
            raise path_error(e, self.path) or e from e

    def prepare(self) -> None:
        """Creates the folder, private to the user and ignored by Git.

        Raises:
            CliError: it cannot be created.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            raise CliError(
                f"the state folder cannot be created: {e.strerror}",
                ExitCode.USAGE,
                where=str(self.path),
                remedy="choose another one with --state-dir",
            ) from e
        ignore = self.path / ".gitignore"
        with contextlib.suppress(OSError):  # a read-only folder is left unchanged
            if not ignore.exists():
                ignore.write_text("*\n")


def state_dir(given: Path | None) -> StateDir:
    """Returns the folder of the option, of ``FLOWMESH_STATE_DIR``, or ``.flowmesh``."""
    chosen = given or Path(os.environ.get(VARIABLE) or DEFAULT)
    return StateDir(chosen.absolute())
