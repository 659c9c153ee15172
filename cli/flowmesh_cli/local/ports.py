"""The address of a local fabric, and whether a port of it can be used."""

import socket

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
