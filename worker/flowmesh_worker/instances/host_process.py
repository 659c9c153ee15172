"""The worker's end of a host: starts the process, exchanges messages, reads its output, ends it.

Engine hosts and standby hosts are built on it. It does not know what a host runs.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping

from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.frames import AttemptEnded, Close, FromHost, ToHost
from flowmesh_worker.ipc.heartbeat import BEAT_S

LOG_LINES_MAX = 50
_LINE_CHARS_MAX = 2000
_READ_BYTES = 1 << 16
_READS_MAX = 4
_WITHHELD = ("FLOWMESH_WORKER_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_WITHHELD_PREFIX = "AWS_"


class HostProcess:
    """A host process. Callbacks run on the event loop; ``on_exit`` is called once, as the last.

    Attributes:
        log: its last lines.
    """

    def __init__(
        self,
        on_message: Callable[[FromHost], None],
        on_line: Callable[[str], None],
        on_exit: Callable[[int], None],
    ) -> None:
        """Starts nothing.

        Args:
            on_message: called with each message of the host.
            on_line: called with each line that it or its children print.
            on_exit: called with its exit code, negative for a signal.
        """
        self._on_message = on_message
        self._on_line = on_line
        self._on_exit = on_exit
        self._channel: Channel[FromHost] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._output = -1
        self._beats = -1
        self._beat_s = 0.0
        self._rest = b""
        self._starting: asyncio.Task[None] | None = None
        self._killed = False
        self.log: deque[str] = deque(maxlen=LOG_LINES_MAX)

    def set_listeners(
        self,
        on_message: Callable[[FromHost], None],
        on_line: Callable[[str], None],
        on_exit: Callable[[int], None],
    ) -> None:
        """Replaces the callbacks; earlier messages and lines are not repeated."""
        self._on_message = on_message
        self._on_line = on_line
        self._on_exit = on_exit
        self.log.clear()

    @property
    def pid(self) -> int:
        """The process id; 0 before it runs."""
        return self._process.pid if self._process is not None else 0

    @property
    def silent_s(self) -> float:
        """Seconds since the last heartbeat; 0 if it does not run."""
        return time.monotonic() - self._beat_s if self._beats >= 0 else 0.0

    def forgive_silence(self) -> None:
        """Counts the silence from now on: heartbeats before this could not be read."""
        self._beat_s = time.monotonic()

    async def start(self, environment: Mapping[str, str]) -> None:
        """Starts the process; further calls wait until it has started.

        Raises:
            OSError: the process cannot be started.
        """
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start(environment))
        await asyncio.shield(self._starting)

    async def _start(self, environment: Mapping[str, str]) -> None:
        with contextlib.ExitStack() as opened:
            ours, theirs = (opened.enter_context(end) for end in socket.socketpair())
            ours.setblocking(False)
            output, printed = _open_pipe(opened)
            beats, beat = _open_pipe(opened)
            await self._spawn(theirs, printed, beat, environment)
            opened.pop_all()
        theirs.close()
        os.close(printed)
        os.close(beat)
        loop = asyncio.get_running_loop()
        self._output = output
        loop.add_reader(self._output, self._read_lines)
        self._beats, self._beat_s = beats, time.monotonic()
        loop.add_reader(beats, self._read_beats)
        self._channel = await Channel[FromHost].over(ours, FromHost, self._received, lambda: None)
        self._watch = loop.create_task(self._wait())
        if self._killed:
            self.kill()

    async def _spawn(
        self, theirs: socket.socket, printed: int, beat: int, environment: Mapping[str, str]
    ) -> None:
        # A session of its own: Ctrl-C in a terminal reaches the agent alone, and the host can be
        # ended with all that it started.
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "flowmesh_worker.host",
            str(theirs.fileno()),
            str(os.getpid()),
            str(beat),
            str(BEAT_S),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=printed,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(theirs.fileno(), beat),
            env=dict(environment),
            start_new_session=True,
        )

    def send(self, message: ToHost) -> None:
        """Sends a message; does nothing before the start and once the host is gone."""
        if self._channel is not None:
            self._channel.send(message)

    def kill(self) -> None:
        """Kills the host and all its children, also while it is being started."""
        self._killed = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kills the host and waits until it is gone."""
        self.kill()
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._watch is not None:
            await asyncio.wait([self._watch])

    async def close(self, within_s: float) -> None:
        """Asks the host to exit; kills it after ``within_s``; waits until it is gone."""
        if self._watch is None:
            return
        self.send(Close())
        done, _ = await asyncio.wait([self._watch], timeout=within_s)
        if not done:
            self.kill()
            await asyncio.wait([self._watch])

    async def _wait(self) -> None:
        assert self._process is not None
        code = await self._process.wait()
        self.kill()
        self._read_lines()
        self._close_output()
        self._close_beats()
        if self._channel is not None:
            self._channel.close()
        self._on_exit(code)

    def _received(self, message: FromHost) -> None:
        """Passes a message on; lines that the host printed before are passed on first."""
        if isinstance(message, AttemptEnded):
            self._read_lines()
        self._on_message(message)

    def _read_lines(self) -> None:
        """Reads at most what a pipe holds: a host that prints without end must not block."""
        for _ in range(_READS_MAX):
            if self._output < 0:
                return
            try:
                data = os.read(self._output, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._close_output()
                return
            *lines, rest = (self._rest + data).split(b"\n")
            self._rest = rest[rest.rfind(b"\r", 0, -1) + 1 :]
            for line in lines:
                self._line(line)
            if len(self._rest) > _READ_BYTES:
                self._line(self._rest)
                self._rest = b""

    def _close_output(self) -> None:
        if self._output < 0:
            return
        asyncio.get_running_loop().remove_reader(self._output)
        os.close(self._output)
        self._output = -1
        if self._rest:
            self._line(self._rest)
            self._rest = b""

    def _read_beats(self) -> None:
        try:
            beats = os.read(self._beats, _READ_BYTES)
        except BlockingIOError:
            return
        if beats:
            self._beat_s = time.monotonic()
        else:
            self._close_beats()

    def _close_beats(self) -> None:
        if self._beats >= 0:
            asyncio.get_running_loop().remove_reader(self._beats)
            os.close(self._beats)
            self._beats = -1

    def _line(self, line: bytes) -> None:
        text = _as_seen(line).decode(errors="replace")[:_LINE_CHARS_MAX]
        self.log.append(text)
        self._on_line(text)


def _open_pipe(opened: contextlib.ExitStack) -> tuple[int, int]:
    """Opens a pipe whose reading end does not block; the stack closes both ends."""
    reading, writing = os.pipe()
    opened.callback(os.close, reading)
    opened.callback(os.close, writing)
    os.set_blocking(reading, False)
    return reading, writing


def _as_seen(line: bytes) -> bytes:
    """Returns what a terminal shows of a line in the end: what follows its last return."""
    line = line.rstrip(b"\r")
    return line[line.rfind(b"\r") + 1 :]


def host_environment(given: Mapping[str, str], threads: int) -> dict[str, str]:
    """Returns the environment of a host: the worker's without its token and credentials.

    Two thread pools that spin on the same cores slow each other down, so every host gets a number
    of threads and the order to wait without spinning.
    """
    passed = {
        name: value
        for name, value in given.items()
        if name not in _WITHHELD and not name.startswith(_WITHHELD_PREFIX)
    }
    count = str(threads)
    pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
    return {
        **passed,
        **dict.fromkeys(pools, count),
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
