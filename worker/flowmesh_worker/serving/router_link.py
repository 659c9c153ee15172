"""A hub's connection to one router, which it makes again whenever it is lost."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.serving import (
    SERVING_VERSION,
    Abort,
    Credit,
    EndRequest,
    FromRouter,
    HubHello,
    RouterRefused,
    RouterWelcome,
    RunStages,
    ServiceCall,
    StageValue,
    ToRouter,
    UseGraph,
)
from flowmesh_worker.ipc.channel import Channel

_UNIX = "unix:"
_RETRY_FIRST_S = 0.05
_RETRY_MAX_S = 2.0
UNSENT_BYTES_MAX = 1 << 20
"""A router that has not taken so many bytes gets no further calls done."""
_log = logging.getLogger(__name__)


RouterMessage = ServiceCall | Credit | Abort | UseGraph | RunStages | StageValue | EndRequest


class CallReceiver(Protocol):
    """The part of the hub that a link uses."""

    def receive(self, link: "RouterLink", message: RouterMessage) -> None:
        """Deals with a frame of a router."""
        ...

    def forget(self, link: "RouterLink") -> None:
        """Drops the calls of a router that is not connected any more."""
        ...


class RouterLink:
    """One router."""

    def __init__(self, address: str, hello: Callable[[], HubHello], receiver: CallReceiver) -> None:
        """Connects in :meth:`run`.

        Raises:
            ProtocolError: the address has another form than ``unix:PATH``.
        """
        if not address.startswith(_UNIX):
            raise ProtocolError(f"{address!r} is not the address of a router: expected {_UNIX}PATH")
        self.address = address
        self._hello = hello
        self._receiver = receiver
        self._channel: Channel[FromRouter] | None = None
        self._is_welcome = False
        self._lost = asyncio.Event()

    async def run(self) -> None:
        """Stays connected until it is cancelled."""
        retry_s = _RETRY_FIRST_S
        try:
            while True:
                with contextlib.suppress(OSError):
                    await self._connect()
                    await self._lost.wait()
                if self._is_welcome:
                    self._is_welcome, retry_s = False, _RETRY_FIRST_S
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, _RETRY_MAX_S)
        finally:
            if self._channel is not None:
                self._channel.close()

    @property
    def is_congested(self) -> bool:
        """Whether the router does not take what it is sent."""
        return self._channel is None or self._channel.unsent_bytes > UNSENT_BYTES_MAX

    def send(self, message: ToRouter) -> None:
        """Sends a frame; does nothing while not connected."""
        if self._channel is not None:
            self._channel.send(message)

    async def _connect(self) -> None:
        self._lost.clear()
        channel = Channel[FromRouter](FromRouter, self._receive, self._disconnected)
        path = self.address.removeprefix(_UNIX)
        await asyncio.get_running_loop().create_unix_connection(lambda: channel, path)
        self._channel = channel
        channel.send(self._hello())

    def _receive(self, message: FromRouter) -> None:
        match message:
            case RouterWelcome(version=version):
                if version != SERVING_VERSION:
                    _log.warning("the router at %s has version %d", self.address, version)
                self._is_welcome = True
            case RouterRefused(reason=reason):
                _log.warning("the router at %s refuses this hub: %s", self.address, reason)
            case _:
                self._receiver.receive(self, message)

    def _disconnected(self) -> None:
        self._channel = None
        self._receiver.forget(self)
        self._lost.set()
