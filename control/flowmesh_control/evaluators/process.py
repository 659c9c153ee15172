"""A child process of the control plane that answers requests, one after the other."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from flowmesh_control.errors import EvaluatorUnavailableError
from flowmesh_control.evaluators.confinement import child_environment
from flowmesh_control.evaluators.framing import BrokenFrameError, framed, read_frame

log = logging.getLogger(__name__)

MEMORY_BYTES = {"conditions": 256 << 20, "workflows": 2 << 30}
"""By kind of evaluator: what it may use beyond the interpreter and its libraries."""
T = TypeVar("T")

START_S = 60.0
"""How long a child may take to load its libraries."""
EXIT_S = 2.0
"""How long a child that has closed its output may take to exit."""


class EvaluatorTimeoutError(Exception):
    """The child did not answer in time, or used up its processor time.

    Attributes:
        waited: the wall time was over; processor time may have been left.
    """

    def __init__(self, *, waited: bool) -> None:
        super().__init__("wall time" if waited else "processor time")
        self.waited = waited


class EvaluatorEndedError(Exception):
    """The child ended twice at the same request.

    Attributes:
        code: its last exit code; negative for a signal.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class EvaluatorProcess:
    """Starts a child when it is first needed, and again after its end."""

    def __init__(self, kind: str, *, longest_reply_bytes: int, setup: bytes = b"") -> None:
        """Starts nothing yet.

        Args:
            kind: what it evaluates: ``conditions`` or ``workflows``.
            longest_reply_bytes: of one frame.
            setup: sent to a new child first; empty for nothing.
        """
        self._kind = kind
        self._longest_reply_bytes = longest_reply_bytes
        self._setup = setup
        self._process: asyncio.subprocess.Process | None = None
        self.started = 0

    async def call(self, exchange: Callable[[], Awaitable[T]], deadline_s: float) -> T:
        """Returns the result of an exchange of requests and replies with a child that runs.

        The exchange is repeated once if the child ends, since something else may have killed it.

        Raises:
            EvaluatorTimeoutError: it took too long; the child was killed.
            EvaluatorEndedError: the child ended twice.
            EvaluatorUnavailableError: no child can be started now.
        """
        for last_try in (False, True):
            await self.start()
            try:
                async with asyncio.timeout(deadline_s):
                    return await exchange()
            except TimeoutError:
                await self.kill()
                raise EvaluatorTimeoutError(waited=True) from None
            except (BrokenFrameError, msgspec.DecodeError) as e:
                code = await self._exit_code()
                if code == -signal.SIGXCPU:
                    raise EvaluatorTimeoutError(waited=False) from e
                if last_try:
                    raise EvaluatorEndedError(code) from e
            except BaseException:
                await self.kill()  # its next frame would answer this request
                raise
        raise AssertionError("the second try returns or raises")

    async def start(self) -> None:
        """Makes sure that a child runs and waits for requests.

        Raises:
            EvaluatorUnavailableError: it cannot be started now.
        """
        if self._process is not None:
            if self._process.returncode is None:
                return
            await self.kill()
        try:
            async with asyncio.timeout(START_S):
                await self._start()
        except (OSError, TimeoutError, BrokenFrameError) as e:
            await self.kill()
            raise EvaluatorUnavailableError(
                f"the process that evaluates {self._kind} does not start: {e or type(e).__name__}",
                remedy="see that this machine has memory and processes left",
            ) from e
        except BaseException:
            await self.kill()
            raise

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-s",
            "-m",
            "flowmesh_control.evaluators.child",
            self._kind,
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=child_environment(),
        )
        if self._setup:
            await self.send(self._setup)
        await self.receive()
        self.started += 1
        log.info("evaluator of %s: process %d", self._kind, self._process.pid)

    async def send(self, data: bytes) -> None:
        """Sends a request.

        Raises:
            BrokenFrameError: the child has ended.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(framed(data))
            await self._process.stdin.drain()
        except OSError as e:
            raise BrokenFrameError(str(e)) from e

    async def receive(self) -> bytes:
        """Returns the next frame of the reply.

        Raises:
            BrokenFrameError: the child has ended, or wrote something other than a frame.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        return await read_frame(self._process.stdout, self._longest_reply_bytes)

    async def _exit_code(self) -> int:
        """Returns the exit code of a child that ends by itself; negative for a signal."""
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), EXIT_S)
        return await self.kill()

    async def kill(self) -> int:
        """Ends the child, and returns its exit code; negative for a signal."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()
