"""Writes what is exported, to a file or to standard output."""

import sys
from pathlib import Path

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal


def write_export(data: bytes, out: Path | None, content: str) -> None:
    """Writes an export.

    Args:
        data: of the file.
        out: the file; None for standard output.
        content: what it holds, such as ``3 rows``, for the note that names the file.

    Raises:
        CliError: the file cannot be written.
    """
    if out is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        out.write_bytes(data)
    except OSError as e:
        raise CliError(f"cannot be written: {e.strerror}", ExitCode.USAGE, where=str(out)) from e
    Terminal(as_json=False).note(f"{content} -> {out}")
