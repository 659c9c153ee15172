"""Gives one worker the link certificates of its hub, and renews them in time."""

from collections.abc import Iterable

import msgspec

from flowmesh_control.auth.link_signer import LinkSigner
from flowmesh_control.loop.clock import Clock
from flowmesh_core.protocol.link_certificates import VALID_S
from flowmesh_core.protocol.messages import RouterAddress, ServingReplica


class WorkerLinks:
    """The certificates of one connection of a worker."""

    def __init__(
        self, signer: LinkSigner, clock: Clock, worker: str, incarnation: str, pool: str
    ) -> None:
        """Issues nothing yet.

        Args:
            signer: issues certificates.
            clock: Unix time in seconds.
            worker: the worker's name.
            incarnation: its process.
            pool: the pool that its token is for.
        """
        self._signer = signer
        self._clock = clock
        self._holder = (worker, incarnation, pool)
        self._routers: tuple[RouterAddress, ...] = ()
        self._namespaces: frozenset[str] = frozenset()
        self._signed_at_s = 0.0
        self._certified: tuple[RouterAddress, ...] = ()

    def certified(
        self, routers: tuple[RouterAddress, ...], replicas: Iterable[ServingReplica]
    ) -> tuple[RouterAddress, ...]:
        """Returns the routers with certificates for the namespaces of the replicas.

        Equal ones get the last certificates again while these are fresh: one takes 0.3 ms to issue.
        """
        namespaces = frozenset(r.service.partition("/")[0] for r in replicas)
        is_new = (routers, namespaces) != (self._routers, self._namespaces)
        self._routers, self._namespaces = routers, namespaces
        if is_new or not self._is_fresh:
            self._certified = self._signed()
        return self._certified

    def renewed(self) -> tuple[RouterAddress, ...] | None:
        """Returns the routers with new certificates; None where the last ones are fresh enough."""
        if not self._needs_certificates or self._is_fresh:
            return None
        self._certified = self._signed()
        return self._certified

    @property
    def _is_fresh(self) -> bool:
        return 0 <= self._clock() - self._signed_at_s < VALID_S / 2

    @property
    def _needs_certificates(self) -> bool:
        return bool(self._namespaces) and any(r.ca for r in self._routers)

    def _signed(self) -> tuple[RouterAddress, ...]:
        if not self._needs_certificates:
            return self._routers
        self._signed_at_s = self._clock()
        return tuple(self._with_certificate(r) if r.ca else r for r in self._routers)

    def _with_certificate(self, router: RouterAddress) -> RouterAddress:
        issued = self._signer.issue(*self._holder, router.group, self._namespaces)
        return msgspec.structs.replace(
            router,
            certificate=issued.certificate,
            key=issued.key,
            authorities=issued.authorities,
        )
