"""The settings of a router, from its command line."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

IN_FLIGHT_MAX = 1024
BODY_BYTES_MAX = 2 << 20
SLOW_CLIENT_S = 30.0
BODY_S = 60.0
HEADER_S = 10.0
CONNECTIONS_MAX = 2048
REPLICA_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """How a router listens.

    Attributes:
        host: for clients.
        port: for clients; 0 for any.
        hubs: the Unix socket on which hubs connect.
        services: the file that lists the services.
        ready_file: gets the router's URL once it listens; None for none.
        in_flight_max: requests of all callers at once.
        body_bytes_max: the largest body of a request.
        slow_client_s: how long a client may take nothing of its answer.
        body_s: how long a client may take to send a body.
        header_s: how long a client may take to send the headers of a request.
        connections_max: of clients, at once.
        replica_wait_s: how long a request waits where its service has no replica.
        parent: the process that the router ends with; None for none.
    """

    host: str
    port: int
    hubs: Path
    services: Path
    ready_file: Path | None = None
    in_flight_max: int = IN_FLIGHT_MAX
    body_bytes_max: int = BODY_BYTES_MAX
    slow_client_s: float = SLOW_CLIENT_S
    body_s: float = BODY_S
    header_s: float = HEADER_S
    connections_max: int = CONNECTIONS_MAX
    replica_wait_s: float = REPLICA_WAIT_S
    parent: int | None = None


def parse_settings(arguments: Sequence[str]) -> RouterSettings:
    """Reads a command line; exits with a message where it is wrong."""
    parser = argparse.ArgumentParser("flowmesh_serving.router", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--hubs", type=Path, required=True)
    parser.add_argument("--services", type=Path, required=True)
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument("--in-flight-max", type=int, default=IN_FLIGHT_MAX)
    parser.add_argument("--body-bytes-max", type=int, default=BODY_BYTES_MAX)
    parser.add_argument("--slow-client-s", type=float, default=SLOW_CLIENT_S)
    parser.add_argument("--body-s", type=float, default=BODY_S)
    parser.add_argument("--header-s", type=float, default=HEADER_S)
    parser.add_argument("--connections-max", type=int, default=CONNECTIONS_MAX)
    parser.add_argument("--replica-wait-s", type=float, default=REPLICA_WAIT_S)
    parser.add_argument("--parent", type=int)
    return RouterSettings(**vars(parser.parse_args(arguments)))
