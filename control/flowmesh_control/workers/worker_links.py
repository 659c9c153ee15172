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

    def certified(
        self, routers: tuple[RouterAddress, ...], replicas: Iterable[ServingReplica]
    ) -> tuple[RouterAddress, ...]:
        """Returns the routers with certificates for the namespaces of the replicas."""
        self._routers = routers
        self._namespaces = frozenset(r.service.partition("/")[0] for r in replicas)
        return self._signed()

    def renewed(self) -> tuple[RouterAddress, ...] | None:
        """Returns the routers with new certificates; None where the last ones are fresh enough."""
        age_s = self._clock() - self._signed_at_s
        if not self._needs_certificates or 0 <= age_s < VALID_S / 2:
            return None
        return self._signed()

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
