"""The connection to the control plane: opened by the worker, kept up, and said everything anew.

The worker never decides here what to do; it passes on what is desired and sends what is held.
"""

import asyncio
import contextlib
import logging
import random
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.messages import (
    Desired,
    Refused,
    Sync,
    Welcome,
    WorkerMessage,
    decode_control,
    encode,
)
from flowmesh_worker.agent.ports import ConnectedWorker

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
_CONNECT_WITHIN_S = 10.0
_HEARTBEAT_S = 20.0
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
            worker: what reports and follows.
            token: read at each connection, and sent with its handshake.
            orphan_timeout_s: how long to try before giving up.
            authority: PEM certificates to trust for ``wss://``, read anew at each connection, since
                authorities are rotated too; the system's where None.
            on_change: called with whether a control plane is there, at every welcome and loss.
        """
        self._url = f"{url}/worker"
        self._worker = worker
        self._token = token
        self._orphan_timeout_s = orphan_timeout_s
        self._authority = authority
        self._on_change = on_change
        self._epoch = 0
        self._closing = False
        self._said_goodbye = asyncio.Event()
        self._alone_since_s = time.monotonic()
        self._backoff_s = BACKOFF_FIRST_S
        self._task: asyncio.Task[None] | None = None
        self._report_due = asyncio.Event()
        self._report_timer: asyncio.TimerHandle | None = None

    def report_within(self, delay_s: float) -> None:
        """Sends the next report no later than this; without a connection, ``Hello`` has it."""
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
            RefusedForGoodError: the control plane does not want this worker.
            OrphanedError: none answered within the orphan timeout.
        """
        self._task = asyncio.current_task()
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_WITHIN_S)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            while not self._closing:
                try:
                    await self._serve(http)
                except (aiohttp.ClientError, OSError, TimeoutError, ProtocolError) as error:
                    if isinstance(error, PermanentlyRefusedError):
                        raise
                    _log.info("no control plane at %s: %s", self._url, error)
                if not self._closing:
                    await self._back_off()
        self._said_goodbye.set()

    async def close(self, within_s: float) -> None:
        """Says goodbye and ends the connection; does not wait longer than told."""
        self._closing = True
        self._report_due.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._said_goodbye.wait(), within_s)

    async def _back_off(self) -> None:
        alone_s = time.monotonic() - self._alone_since_s
        if alone_s >= self._orphan_timeout_s:
            raise OrphanedError(
                f"no control plane at {self._url} for {alone_s:.0f} s",
                remedy="start one, or a worker with its address",
            )
        pause_s = min(self._backoff_s, self._orphan_timeout_s - alone_s)
        # Workers that lost the same control plane must not come back in step.
        pause_s *= random.uniform(0.5, 1.0)
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)
        await asyncio.sleep(max(pause_s, 0.01))

    async def _serve(self, http: aiohttp.ClientSession) -> None:
        async with http.ws_connect(
            self._url,
            max_msg_size=0,
            compress=0,
            heartbeat=_HEARTBEAT_S,
            headers={"Authorization": f"Bearer {self._token()}"},
            ssl=self._authority is None or ssl.create_default_context(cafile=self._authority),
        ) as socket:
            await self._send(socket, self._worker.hello(self._epoch))
            welcome = await asyncio.wait_for(self._first(socket), _CONNECT_WITHIN_S)
            self._see_epoch(welcome.epoch)
            self._backoff_s = BACKOFF_FIRST_S
            self._on_change(True)
            try:
                await self._both_ways(socket, welcome.sync_interval_s)
            finally:
                self._on_change(False)
                self._alone_since_s = time.monotonic()

    async def _first(self, socket: aiohttp.ClientWebSocketResponse) -> Welcome:
        message = self._decoded(await socket.receive())
        match message:
            case Welcome():
                return message
            case Refused(reason=reason, final=True):
                raise PermanentlyRefusedError(f"the control plane refuses this worker: {reason}")
            case Refused(reason=reason):
                raise ProtocolError(f"refused for now: {reason}")
        raise ProtocolError("the control plane did not begin with Welcome or Refused")

    async def _both_ways(
        self, socket: aiohttp.ClientWebSocketResponse, sync_interval_s: float
    ) -> None:
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._receive_all(socket)),
            loop.create_task(self._send_all(socket, sync_interval_s)),
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
                raise ProtocolError(f"refused: {message.reason}")
            if not isinstance(message, Desired):
                raise ProtocolError(f"unexpected {type(message).__name__} from the control plane")
            self._see_epoch(message.epoch)
            if message.seq != expected:
                raise ProtocolError(f"message {message.seq} came where {expected} was expected")
            expected += 1
            self._worker.follow(message)

    async def _send_all(
        self, socket: aiohttp.ClientWebSocketResponse, sync_interval_s: float
    ) -> None:
        seq = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(sync_interval_s):
                    await self._report_due.wait()
            self._report_due.clear()
            seq += 1
            sync = self._worker.sync(seq)
            if self._closing:
                await self._send(socket, msgspec.structs.replace(sync, goodbye=True))
                return
            await self._send(socket, sync)
            # One turn for what is ready anyway: it joins the next message.
            await asyncio.sleep(0)

    def _see_epoch(self, epoch: int) -> None:
        if epoch < self._epoch:
            raise ProtocolError(f"a control plane of epoch {epoch}; {self._epoch} was seen before")
        self._epoch = epoch

    @staticmethod
    async def _send(socket: aiohttp.ClientWebSocketResponse, message: WorkerMessage | Sync) -> None:
        await socket.send_bytes(encode(message))

    @staticmethod
    def _decoded(raw: aiohttp.WSMessage) -> Welcome | Refused | Desired:
        if raw.type is not aiohttp.WSMsgType.BINARY:
            raise ProtocolError(f"the control plane closed the connection ({raw.type.name})")
        try:
            return decode_control(raw.data)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"the control plane sent no message of ours: {error}") from error
