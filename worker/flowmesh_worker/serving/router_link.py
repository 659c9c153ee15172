"""A hub's connection to one router, which it makes again whenever it is lost."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Protocol

from flowmesh_core.protocol.serving import (
    SERVING_VERSION,
    Abort,
    AskStages,
    Credit,
    EndRequest,
    FromRouter,
    HubHello,
    LinkRenewed,
    Ping,
    Pong,
    RouterRefused,
    RouterWelcome,
    RunStages,
    ServiceCall,
    StageValue,
    ToRouter,
    UseGraph,
)
from flowmesh_worker.ipc.channel import Channel

_RETRY_FIRST_S = 0.05
_RETRY_MAX_S = 2.0
UNSENT_BYTES_MAX = 1 << 20
"""A router that has not taken so many bytes gets no further calls done."""
SILENT_S = 3.0
"""A router that has not sent a ping for so long is disconnected: its calls have ended."""
_CHECK_EVERY_S = 1.0
_log = logging.getLogger(__name__)

Connect = Callable[[Channel[FromRouter]], Awaitable[object]]
"""Connects a channel to a router; raises OSError where it cannot."""


RouterMessage = (
    ServiceCall | Credit | Abort | UseGraph | RunStages | StageValue | EndRequest | AskStages
)


class CallReceiver(Protocol):
    """The part of the hub that a link uses."""

    def receive(self, link: "RouterLink", message: RouterMessage) -> None:
        """Deals with a frame of a router."""
        ...

    def forget(self, link: "RouterLink") -> None:
        """Drops the calls of a router that is not connected any more."""
        ...


class RouterLink:
    """One router.

    Attributes:
        address: for the log.
    """

    def __init__(
        self,
        address: str,
        connect: Connect,
        hello: Callable[[], HubHello],
        receiver: CallReceiver,
    ) -> None:
        """Connects in :meth:`run`.

        Args:
            address: for the log.
            connect: opens the connection of a channel.
            hello: returns the hub's first frame.
            receiver: gets the router's frames.
        """
        self.address = address
        self._connect_channel = connect
        self._hello = hello
        self._receiver = receiver
        self._channel: Channel[FromRouter] | None = None
        self._is_welcome = self._is_refused = False
        self._lost = asyncio.Event()
        self._heard_s = 0.0

    async def run(self) -> None:
        """Stays connected until it is cancelled."""
        retry_s = _RETRY_FIRST_S
        try:
            while True:
                try:
                    await self._connect()
                    await self._until_lost()
                    self._warn_without_welcome()
                except ssl.SSLError as error:
                    _log.warning("the router at %s is not to be trusted: %s", self.address, error)
                except OSError:
                    pass  # it is starting, or gone
                if self._is_welcome:
                    self._is_welcome, retry_s = False, _RETRY_FIRST_S
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, _RETRY_MAX_S)
        finally:
            if self._channel is not None:
                self._channel.close()

    def _warn_without_welcome(self) -> None:
        """Logs that a router gave no reason: by TLS it refuses a certificate without words."""
        if not self._is_welcome and not self._is_refused:
            _log.warning(
                "the router at %s ended the connection before its welcome: where this repeats, it"
                " does not know the authority of this hub's link certificate, or that has expired",
                self.address,
            )

    async def _until_lost(self) -> None:
        """Returns when the connection has ended; ends it where the router is silent."""
        loop = asyncio.get_running_loop()
        self._heard_s = loop.time()
        while not self._lost.is_set():
            due_s = loop.time() + _CHECK_EVERY_S
            try:
                async with asyncio.timeout_at(due_s):
                    await self._lost.wait()
            except TimeoutError:
                now_s = loop.time()
                if now_s - due_s > _CHECK_EVERY_S:
                    self._heard_s = now_s  # this process stood still, with frames in its socket
                if self._is_welcome and now_s - self._heard_s > SILENT_S and self._channel:
                    _log.warning("the router at %s is silent for %g s", self.address, SILENT_S)
                    self._channel.abort()

    @property
    def is_connected(self) -> bool:
        """Whether the router is connected."""
        return self._channel is not None

    def renew(self, certificate: str) -> None:
        """Shows the router another link certificate; does nothing while not connected."""
        self.send(LinkRenewed(certificate))

    @property
    def is_congested(self) -> bool:
        """Whether the router does not take what it is sent."""
        return self._channel is None or self._channel.unsent_bytes > UNSENT_BYTES_MAX

    def send(self, message: ToRouter) -> None:
        """Sends a frame; does nothing while not connected."""
        if self._channel is not None:
            self._channel.send(message)

    def defer(self, message: ToRouter) -> None:
        """Sends what need not arrive at once; does nothing while not connected."""
        if self._channel is not None:
            self._channel.defer(message)

    async def _connect(self) -> None:
        self._lost.clear()
        self._is_refused = False
        channel = Channel[FromRouter](FromRouter, self._receive, self._disconnected)
        await self._connect_channel(channel)
        self._channel = channel
        channel.send(self._hello())

    def _receive(self, message: FromRouter) -> None:
        self._heard_s = asyncio.get_running_loop().time()
        match message:
            case Ping():
                self.send(Pong())
            case RouterWelcome(version=version):
                if version != SERVING_VERSION:
                    _log.warning("the router at %s has version %d", self.address, version)
                self._is_welcome = True
            case RouterRefused(reason=reason):
                self._is_refused = True
                _log.warning("the router at %s refuses this hub: %s", self.address, reason)
            case _:
                self._receiver.receive(self, message)

    def _disconnected(self) -> None:
        self._channel = None
        self._receiver.forget(self)
        self._lost.set()
