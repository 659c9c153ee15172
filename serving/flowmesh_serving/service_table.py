"""Which services a router offers to whom, read from a file that it watches.

On a laptop ``fmesh serve`` writes the file. Tokens are in it as hashes only. The file is a level:
what it lists holds from the next look at it, and a service or token that leaves it is refused.
"""

import hashlib
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.stages.service_graph import LoadedGraph, ServiceGraph

DEFAULT_TIMEOUT_S = 600.0
DEFAULT_IN_FLIGHT_MAX = 64


class ServiceToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token that may call one service.

    Attributes:
        hash: SHA-256 of the token, in hexadecimal.
        namespace: of the caller: who pays, and whose prefix cache is used.
        expires_s: Unix time; 0 for never.
    """

    hash: str
    namespace: str
    expires_s: float = 0.0


class ServiceEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A service.

    Attributes:
        service: ``namespace/name``.
        model: its name in OpenAI's API.
        tokens: those that may call it.
        timeout_s: the longest that a request may take.
        in_flight_max: requests that one namespace may have in flight.
        created_s: Unix time.
        graph: its stages; None for a service of one engine.
        slo_s: when a reply is late; 0 for no target.
        on_late: what becomes of a request that cannot be in time.
        request_bytes_max: the largest request of a service with stages.
        max_in_flight: requests of a service with stages that have not ended, of all callers.
    """

    service: str
    model: str
    tokens: tuple[ServiceToken, ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S
    in_flight_max: int = DEFAULT_IN_FLIGHT_MAX
    created_s: float = 0.0
    graph: ServiceGraph | None = None
    slo_s: float = 0.0
    on_late: str = "demote"
    request_bytes_max: int = 1 << 20
    max_in_flight: int = DEFAULT_IN_FLIGHT_MAX


class ServiceList(msgspec.Struct, frozen=True):
    """The content of the file."""

    services: tuple[ServiceEntry, ...] = ()


class Caller(NamedTuple):
    """Who sends a request: a token of one service."""

    service: ServiceEntry
    namespace: str


def token_hash(token: str) -> str:
    """Returns what the file has of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class ServiceTable:
    """The services of a file."""

    def __init__(self, path: Path) -> None:
        """Reads the file.

        Raises:
            FlowMeshError: it cannot be read.
        """
        self._path = path
        self._changed_ns = -1
        self._tokens: dict[str, tuple[ServiceEntry, ServiceToken]] = {}
        self._graphs: dict[str, LoadedGraph] = {}
        self.refresh()

    def refresh(self) -> None:
        """Reads the file again if it has changed.

        Raises:
            FlowMeshError: it cannot be read; what it said before holds.
        """
        try:
            changed_ns = self._path.stat().st_mtime_ns
            if changed_ns == self._changed_ns:
                return
            listed = decode(_decoder, self._path.read_bytes())
        except (OSError, msgspec.DecodeError) as e:
            raise FlowMeshError(
                f"the list of services cannot be read: {e}",
                where=str(self._path),
                remedy="start the service again with `fmesh serve`",
            ) from e
        self._changed_ns = changed_ns
        self._graphs = {
            s.service: LoadedGraph(s.graph) for s in listed.services if s.graph is not None
        }
        self._tokens = {t.hash: (s, t) for s in listed.services for t in s.tokens}

    def graph(self, service: str) -> LoadedGraph | None:
        """Returns the stages of a service; None for one without."""
        return self._graphs.get(service)

    def caller(self, token: str) -> Caller | None:
        """Returns whose token this is; None for an unknown or expired one."""
        found = self._tokens.get(token_hash(token))
        if found is None:
            return None
        service, known = found
        if known.expires_s and known.expires_s <= time.time():
            return None
        return Caller(service, known.namespace)


_decoder = msgspec.json.Decoder(ServiceList)


def write_services(path: Path, services: tuple[ServiceEntry, ...]) -> None:
    """Replaces the file, readable by its owner only."""
    text = msgspec.json.format(msgspec.json.encode(ServiceList(services))) + b"\n"
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_bytes(text)
    new.replace(path)
