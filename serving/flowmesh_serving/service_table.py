"""Which services a router offers to whom, as it was last read from its file or control plane."""

import time
from typing import NamedTuple

from flowmesh_core.protocol.router_services import (
    RouterServices,
    ServiceEntry,
    ServiceToken,
    token_hash,
)


class Caller(NamedTuple):
    """Who sends a request: a token of one service."""

    service: ServiceEntry
    namespace: str


class ServiceTable:
    """The services and their tokens; empty before the first :meth:`use`.

    Attributes:
        is_known: whether they have been read.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, tuple[ServiceEntry, ServiceToken]] = {}
        self.is_known = False

    def use(self, listed: RouterServices) -> None:
        """Replaces all services."""
        self._tokens = {t.hash: (s, t) for s in listed.services for t in s.tokens}
        self.is_known = True

    def caller(self, token: str) -> Caller | None:
        """Returns whose token this is; None for an unknown or expired one."""
        found = self._tokens.get(token_hash(token))
        if found is None:
            return None
        service, known = found
        if known.expires_s and known.expires_s <= time.time():
            return None
        return Caller(service, known.namespace)
