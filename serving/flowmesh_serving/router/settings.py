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
END_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """How a router listens.

    Attributes:
        host: for clients, hubs and probes.
        port: for clients; 0 for any.
        hubs: the Unix socket on which hubs connect; None for none.
        services: the file that lists the services; None where the control plane does.
        ready_file: gets the router's URL once it listens; None for none.
        in_flight_max: requests of all callers at once.
        body_bytes_max: the largest body of a request.
        slow_client_s: how long a client may take nothing of its answer.
        body_s: how long a client may take to send a body.
        header_s: how long a client may take to send the headers of a request.
        connections_max: of clients, at once.
        replica_wait_s: how long a request waits where its service has no replica.
        end_within_s: how long requests may take to end when the router stops.
        parent: the process that the router ends with; None for none.
        hubs_port: the port on which hubs connect with TLS and a link certificate; 0 for any, None
            for none.
        probe_port: the port of ``/healthz``, ``/readyz`` and ``/metrics``; None for the clients'.
        tls_cert: the router's certificate (PEM), with ``tls_key``; clients use plain HTTP without.
        control: the URL of the control plane that lists the services; empty for none.
        control_ca: certificates (PEM) that the control plane's is verified with.
        token: the file with the router's token for the control plane.
        group: the routers that serve the same services.
        reports: the file that gets the router's reports where no control plane does; None for none.
        stage_times: whether the status of a request has the times of its stages after its end,
            which its hubs are then asked for.
    """

    host: str
    port: int
    hubs: Path | None = None
    services: Path | None = None
    ready_file: Path | None = None
    in_flight_max: int = IN_FLIGHT_MAX
    body_bytes_max: int = BODY_BYTES_MAX
    slow_client_s: float = SLOW_CLIENT_S
    body_s: float = BODY_S
    header_s: float = HEADER_S
    connections_max: int = CONNECTIONS_MAX
    replica_wait_s: float = REPLICA_WAIT_S
    end_within_s: float = END_WITHIN_S
    parent: int | None = None
    hubs_port: int | None = None
    probe_port: int | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    control: str = ""
    control_ca: Path | None = None
    token: Path | None = None
    group: str = ""
    reports: Path | None = None
    stage_times: bool = False


def parse_settings(arguments: Sequence[str]) -> RouterSettings:
    """Reads a command line; exits with a message where it is wrong."""
    parser = argparse.ArgumentParser("flowmesh_serving.router", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--hubs", type=Path)
    parser.add_argument("--services", type=Path)
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument("--in-flight-max", type=int, default=IN_FLIGHT_MAX)
    parser.add_argument("--body-bytes-max", type=int, default=BODY_BYTES_MAX)
    parser.add_argument("--slow-client-s", type=float, default=SLOW_CLIENT_S)
    parser.add_argument("--body-s", type=float, default=BODY_S)
    parser.add_argument("--header-s", type=float, default=HEADER_S)
    parser.add_argument("--connections-max", type=int, default=CONNECTIONS_MAX)
    parser.add_argument("--replica-wait-s", type=float, default=REPLICA_WAIT_S)
    parser.add_argument("--end-within-s", type=float, default=END_WITHIN_S)
    parser.add_argument("--parent", type=int)
    parser.add_argument("--hubs-port", type=int)
    parser.add_argument("--probe-port", type=int)
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--control", default="")
    parser.add_argument("--control-ca", type=Path)
    parser.add_argument("--token", type=Path)
    parser.add_argument("--group", default="")
    parser.add_argument("--reports", type=Path)
    parser.add_argument("--stage-times", action="store_true")
    settings = RouterSettings(**vars(parser.parse_args(arguments)))
    if problem := _problem(settings):
        parser.error(problem)
    return settings


def _problem(settings: RouterSettings) -> str:
    """Returns what is wrong with a combination of settings; empty for nothing."""
    if (settings.services is None) == (not settings.control):
        return "name either --services or --control"
    if settings.control and settings.token is None:
        return "--control needs --token, the file with this router's token"
    if (settings.tls_cert is None) != (settings.tls_key is None):
        return "--tls-cert and --tls-key belong together"
    if settings.hubs is None and settings.hubs_port is None:
        return "name --hubs or --hubs-port"
    if settings.hubs_port is not None and settings.tls_cert is None:
        return "--hubs-port needs --tls-cert and --tls-key"
    return ""
