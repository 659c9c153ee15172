"""Checks that an input file is readable, so that a wrong path gets a remedy."""

from pathlib import Path

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode


def require_file(path: Path) -> None:
    """Opens a file for reading and closes it again.

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
            remedy="check the path",
        ) from e
