"""A router's connection to the hub of one worker; the hub dials.

On a laptop it is a Unix socket that only one user may connect to. From another machine a hub shows
a link certificate, and gets calls of the namespaces that it names, until it expires.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.framed_connection import FramedConnection
from flowmesh_core.protocol.serving import (
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    SERVING_VERSION,
    CallEnded,
    CallRefused,
    FromRouter,
    HubHello,
    LinkRenewed,
    Piece,
    ReplicaLoad,
    ReplicaLoads,
    RouterRefused,
    RouterWelcome,
    ToRouter,
)
from flowmesh_serving.links.link_verifier import LinkVerifier

if TYPE_CHECKING:
    from flowmesh_core.protocol.link_certificates import LinkClaims

HELLO_WITHIN_S = 10.0
_log = logging.getLogger(__name__)


class HubListener(Protocol):
    """The parts of the router that a link's frames are for."""

    def loads_changed(self, link: "HubLink", loads: tuple[ReplicaLoad, ...]) -> None:
        """Records the replicas of a hub."""
        ...

    def reply(self, link: "HubLink", message: Piece | CallEnded | CallRefused) -> None:
        """Deals with a frame of a call."""
        ...

    def lost(self, link: "HubLink") -> None:
        """Forgets a hub, and ends the calls that it has."""
        ...


class HubLink(FramedConnection[ToRouter], asyncio.Protocol):
    """One hub.

    Attributes:
        worker: its worker's name; empty before its hello.
    """

    def __init__(self, listener: HubListener, verifier: LinkVerifier | None = None) -> None:
        """Waits for a hello.

        Args:
            listener: gets the hub's frames.
            verifier: verifies its link certificate; None on a Unix socket.
        """
        super().__init__(
            ToRouter,
            self._receive,
            self._disconnected,
            lambda send: asyncio.get_running_loop().call_soon(send),
            FRAME_BYTES_MAX if verifier is None else HELLO_BYTES_MAX,
        )
        self.worker = ""
        self._listener = listener
        self._verifier = verifier
        self._claims: LinkClaims | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HELLO_WITHIN_S, self._refuse, "it has not sent a hello")

    def answer(self, message: FromRouter) -> None:
        """Sends a frame to the hub."""
        self.send(message)

    def _receive(self, message: ToRouter) -> None:
        match message:
            case HubHello():
                self._welcome(message)
            case _ if not self.worker:
                self._refuse("the first frame was not a hello")
            case LinkRenewed(certificate=certificate):
                self._admit(certificate, self.worker)
            case ReplicaLoads(replicas=replicas):
                self._listener.loads_changed(self, self._permitted(replicas))
            case _:
                self._listener.reply(self, message)

    def _welcome(self, hello: HubHello) -> None:
        if hello.version != SERVING_VERSION:
            self._refuse(f"version {hello.version} of the protocol: expected {SERVING_VERSION}")
            return
        self._timer.cancel()
        if not self._admit(hello.certificate, hello.worker):
            return
        self.worker = hello.worker
        self._frame_bytes_max = FRAME_BYTES_MAX
        self.answer(RouterWelcome(SERVING_VERSION))
        self._listener.loads_changed(self, self._permitted(hello.replicas))

    def _admit(self, certificate: str, worker: str) -> bool:
        """Has the link last as long as a certificate; returns False, and closes it, without one."""
        if self._verifier is None:
            return True
        try:
            self._claims = self._verifier.verify(certificate, worker)
        except ProtocolError as error:
            self._refuse(error.message)
            return False
        self._timer.cancel()
        remaining_s = self._verifier.remaining_s(self._claims)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(remaining_s, self._refuse, "its link certificate has expired")
        return True

    def _permitted(self, replicas: tuple[ReplicaLoad, ...]) -> tuple[ReplicaLoad, ...]:
        """Returns the replicas that the hub may have: of the namespaces of its certificate."""
        if self._claims is None:
            return replicas
        allowed = self._claims.namespaces
        return tuple(r for r in replicas if r.service.partition("/")[0] in allowed)

    def _refuse(self, reason: str) -> None:
        _log.warning("refused the hub of %s: %s", self.worker or "a worker", reason)
        self.answer(RouterRefused(reason))
        self.close()

    def _disconnected(self) -> None:
        self._timer.cancel()
        self._listener.lost(self)
