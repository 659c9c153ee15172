"""The connection to the control plane: sends reports and receives the desired state.

Each new connection begins with a ``Hello`` that reports everything. It decides nothing about work.
"""

import asyncio
import contextlib
import logging
import random
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
import msgspec

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.frames import MessageTooLargeError, hello_frame, sync_frames
from flowmesh_core.protocol.messages import (
    REFUSAL_HEADER,
    AttemptEnd,
    Desired,
    Refused,
    Sync,
    Welcome,
    decode_control,
)
from flowmesh_worker.agent.ports import ConnectedWorker

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
_CONNECT_WITHIN_S = 10.0
_HEARTBEAT_S = 20.0
_FOR_GOOD = (401, 403)
_log = logging.getLogger(__name__)


class PermanentlyRefusedError(ProtocolError):
    """The control plane refuses this worker and asks it not to come back."""


class OrphanedError(ProtocolError):
    """No control plane answered for too long."""


class GatewayConnection:
    """Keeps one WebSocket to the gateway until it is closed, refused for good, or orphaned."""

    def __init__(
        self,
        url: str,
        worker: ConnectedWorker,
        token: Callable[[], str],
        orphan_timeout_s: float,
        authority: Path | None,
        on_change: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Connects in :meth:`run`.

        Args:
            url: of the gateway, without ``/worker``.
            worker: makes the reports and follows the desired state.
            token: read at each connection, and sent with its handshake.
            orphan_timeout_s: how long to try before giving up.
            authority: PEM certificates to trust for ``wss://``, read anew at each connection, since
                they are rotated; None trusts the system's.
            on_change: called with True at each welcome and False when the connection is lost.
        """
        self._url = f"{url}/worker"
        self._worker = worker
        self._token = token
        self._orphan_timeout_s = orphan_timeout_s
        self._authority = authority
        self._on_change = on_change
        self._epoch = 0
        self._closing = False
        self._closed = asyncio.Event()
        self._orphaned_since_s = time.monotonic()
        self._backoff_s = BACKOFF_FIRST_S
        self._task: asyncio.Task[None] | None = None
        self._report_due = asyncio.Event()
        self._report_timer: asyncio.TimerHandle | None = None

    def report_within(self, delay_s: float) -> None:
        """Sends the next report within this time; without a connection, ``Hello`` carries it."""
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._report_timer = None
        if delay_s <= 0:
            self._report_due.set()
        else:
            loop = asyncio.get_running_loop()
            self._report_timer = loop.call_later(delay_s, self._report_due.set)

    async def run(self) -> None:
        """Serves until closed.

        Raises:
            PermanentlyRefusedError: the control plane refuses this worker for good.
            MessageTooLargeError: the worker's full state is too large.
            OrphanedError: no control plane answered within the orphan timeout.
        """
        self._task = asyncio.current_task()
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_WITHIN_S)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            while not self._closing:
                try:
                    await self._serve(http)
                except (PermanentlyRefusedError, MessageTooLargeError):
                    raise
                except (aiohttp.ClientError, OSError, TimeoutError, ProtocolError) as error:
                    _log.info("no control plane at %s: %s", self._url, error)
                if not self._closing:
                    await self._back_off()
        self._closed.set()

    async def close(self, within_s: float) -> None:
        """Sends a goodbye and closes the connection; waits for at most ``within_s``."""
        self._closing = True
        self._report_due.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), within_s)

    async def _back_off(self) -> None:
        orphaned_s = time.monotonic() - self._orphaned_since_s
        if orphaned_s >= self._orphan_timeout_s:
            raise OrphanedError(
                f"no control plane at {self._url} for {orphaned_s:.0f} s",
                remedy="start a control plane, or give the worker its address",
            )
        pause_s = min(self._backoff_s, self._orphan_timeout_s - orphaned_s)
        # Jitter: workers that lost the same control plane must not reconnect all at once.
        pause_s *= random.uniform(0.5, 1.0)
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)
        await asyncio.sleep(max(pause_s, 0.01))

    async def _connect(self, http: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse:
        try:
            return await http.ws_connect(
                self._url,
                max_msg_size=0,
                compress=0,
                heartbeat=_HEARTBEAT_S,
                headers={"Authorization": f"Bearer {self._token()}"},
                ssl=self._authority is None or ssl.create_default_context(cafile=self._authority),
            )
        except aiohttp.WSServerHandshakeError as error:
            reason = error.headers.get(REFUSAL_HEADER, "") if error.headers else ""
            if reason and error.status in _FOR_GOOD:
                raise PermanentlyRefusedError(
                    f"the control plane refuses this worker ({error.status}): {reason}"
                ) from error
            raise ProtocolError(
                f"the control plane refuses this worker for now ({error.status}): "
                f"{reason or error.message}"
            ) from error

    async def _serve(self, http: aiohttp.ClientSession) -> None:
        async with await self._connect(http) as socket:
            frame, unsent = hello_frame(self._worker.hello(self._epoch))
            await socket.send_bytes(frame)
            welcome = await asyncio.wait_for(self._first(socket), _CONNECT_WITHIN_S)
            self._see_epoch(welcome.epoch)
            self._backoff_s = BACKOFF_FIRST_S
            self._on_change(True)
            try:
                await self._both_ways(socket, welcome.sync_interval_s, unsent)
            finally:
                self._on_change(False)
                self._orphaned_since_s = time.monotonic()

    async def _first(self, socket: aiohttp.ClientWebSocketResponse) -> Welcome:
        message = self._decoded(await socket.receive())
        match message:
            case Welcome():
                return message
            case Refused(reason=reason, final=True):
                raise PermanentlyRefusedError(f"the control plane refuses this worker: {reason}")
            case Refused(reason=reason):
                raise ProtocolError(f"the control plane refuses this worker for now: {reason}")
        raise ProtocolError("the first message is not Welcome or Refused")

    async def _both_ways(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        sync_interval_s: float,
        unsent: Sequence[AttemptEnd],
    ) -> None:
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._receive_all(socket)),
            loop.create_task(self._send_all(socket, sync_interval_s, unsent)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive_all(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        expected = 1
        async for raw in socket:
            message = self._decoded(raw)
            if isinstance(message, Refused):
                if message.final:
                    raise PermanentlyRefusedError(
                        f"the control plane refuses this worker: {message.reason}"
                    )
                raise ProtocolError(
                    f"the control plane refuses this worker for now: {message.reason}"
                )
            if not isinstance(message, Desired):
                raise ProtocolError(
                    f"unexpected message {type(message).__name__}: expected Desired"
                )
            self._see_epoch(message.epoch)
            if message.seq != expected:
                raise ProtocolError(f"message {message.seq} is out of order: expected {expected}")
            expected += 1
            self._worker.follow(message)

    async def _send_all(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        sync_interval_s: float,
        unsent: Sequence[AttemptEnd],
    ) -> None:
        seq = 1
        if unsent:
            seq = await self._send(socket, Sync(seq, ended=tuple(unsent)))
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(sync_interval_s):
                    await self._report_due.wait()
            self._report_due.clear()
            sync = self._worker.sync(seq)
            if self._closing:
                await self._send(socket, msgspec.structs.replace(sync, goodbye=True))
                return
            seq = await self._send(socket, sync)
            # Lets tasks run that are ready now: their changes share the next message.
            await asyncio.sleep(0)

    def _see_epoch(self, epoch: int) -> None:
        if epoch < self._epoch:
            raise ProtocolError(
                f"the control plane's epoch {epoch} is outdated: expected {self._epoch} or later"
            )
        self._epoch = epoch

    @staticmethod
    async def _send(socket: aiohttp.ClientWebSocketResponse, sync: Sync) -> int:
        """Sends a report, in several messages where it is large; returns the next number."""
        frames = sync_frames(sync)
        for frame in frames:
            await socket.send_bytes(frame)
        return sync.seq + len(frames)

    @staticmethod
    def _decoded(raw: aiohttp.WSMessage) -> Welcome | Refused | Desired:
        if raw.type is not aiohttp.WSMsgType.BINARY:
            raise ProtocolError(f"the control plane closed the connection ({raw.type.name})")
        try:
            return decode_control(raw.data)
        except msgspec.DecodeError as error:
            raise ProtocolError(
                f"the control plane's message cannot be decoded: {error}"
            ) from error
