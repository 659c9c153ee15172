"""Checks that an input file is readable, so that a wrong path gets a remedy."""

from pathlib import Path

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode


def require_file(path: Path, remedy: str = "check the path") -> None:
    """Opens a file for reading and closes it again.

    Args:
        path: the file.
        remedy: what to do where it cannot be read.

    Raises:
        CliError: the file cannot be read.
    """
    try:
        path.open("rb").close()
    except OSError as e:
        raise CliError(
            f"cannot be read: {e.strerror}",
            ExitCode.USAGE,
            where=str(path),
            remedy=remedy,
        ) from e
