"""The address of a local fabric, and whether a port of it can be used."""

import socket

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    """Returns whether a server can listen on a port of this machine; 0 is any."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def require_free(port: int) -> None:
    """Refuses a port on which no server can listen.

    Raises:
        CliError: another process uses it.
    """
    if port and not is_free(port):
        raise CliError(
            f"port {port} is in use",
            ExitCode.USAGE,
            where="--port",
            remedy="choose another, or 0 for any",
        )
