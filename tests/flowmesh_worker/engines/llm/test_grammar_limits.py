"""Grammars are compiled one at a time, tenants in turns, each grammar once."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.llm.grammar_limits import GrammarLimits
from flowmesh_worker.engines.llm.grammar_process import (
    COMPILED,
    GrammarReply,
    GrammarRequest,
    frame,
    frame_size,
)


class Compiler:
    """The other end of the socket pair: compiles when it is let."""

    def __init__(self) -> None:
        self.socket, self._theirs = socket.socketpair()
        self.seen: list[str] = []
        self.may_reply = asyncio.Semaphore(0)

    async def serve(self) -> None:
        reader, writer = await asyncio.open_connection(sock=self._theirs)
        while header := await reader.read(4):
            data = await reader.readexactly(frame_size(header))
            spec = msgspec.msgpack.decode(data, type=GrammarRequest).spec
            self.seen.append(spec)
            await self.may_reply.acquire()
            writer.write(frame(GrammarReply(COMPILED, spec)))
        writer.close()
        await writer.wait_closed()

    def close(self) -> None:
        self.socket.close()


@contextlib.asynccontextmanager
async def compiling() -> AsyncIterator[tuple[GrammarLimits, Compiler]]:
    compiler = Compiler()
    limits = GrammarLimits(compiler)  # type: ignore[arg-type]
    serving = asyncio.ensure_future(compiler.serve())
    yield limits, compiler
    limits.close()
    await serving


def asked(limits: GrammarLimits, spec: str, tenant: str) -> "asyncio.Task[GrammarReply]":
    return asyncio.ensure_future(limits.compiled(GrammarRequest("JSON", spec), tenant))


async def until(compiler: Compiler, count: int) -> None:
    async with asyncio.timeout(30):
        while len(compiler.seen) < count:  # noqa: ASYNC110 - the other end has no event
            await asyncio.sleep(0.001)


async def test_a_tenants_grammar_waits_for_one_of_another_at_most() -> None:
    async with compiling() as (limits, compiler):
        many = [asked(limits, f"a{i}", "a") for i in range(5)]
        await until(compiler, 1)
        one = asked(limits, "b", "b")
        for _ in range(6):
            compiler.may_reply.release()
        replies = await asyncio.gather(*many, one)
        assert compiler.seen.index("b") <= 2
        assert [r.message for r in replies] == ["a0", "a1", "a2", "a3", "a4", "b"]


async def test_a_grammar_is_compiled_once_for_all_tenants() -> None:
    async with compiling() as (limits, compiler):
        compiler.may_reply.release()
        await asyncio.gather(asked(limits, "x", "a"), asked(limits, "x", "b"))
        await asked(limits, "x", "a")
        assert compiler.seen == ["x"]


async def test_a_request_that_is_cancelled_leaves_no_reply_to_the_next() -> None:
    async with compiling() as (limits, compiler):
        first = asked(limits, "x", "a")
        await until(compiler, 1)
        first.cancel()
        second = asked(limits, "y", "a")
        compiler.may_reply.release()
        compiler.may_reply.release()
        assert (await second).message == "y"
        assert first.cancelled()


async def test_without_the_process_the_instance_is_broken() -> None:
    compiler = Compiler()
    compiler._theirs.close()
    limits = GrammarLimits(compiler)  # type: ignore[arg-type]
    with pytest.raises(AttemptError) as broken:
        await limits.compiled(GrammarRequest("JSON", "{}"), "a")
    assert broken.value.failure.kind is FailureKind.HOST_CRASHED
    limits.close()
