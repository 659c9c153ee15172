"""Refuses requests whose grammar takes too long, or too much memory, to compile.

Each is compiled once in the :class:`GrammarProcess`, and vLLM gets it only where that succeeds. One
grammar of a tenant is compiled at a time, and tenants take turns, so that one of them delays each
request of the others by one grammar at most.
"""

import asyncio
import re
from collections import OrderedDict
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from blake3 import blake3

from flowmesh_core.decoding import decode
from flowmesh_worker.engines.errors import host_crashed
from flowmesh_worker.engines.llm.grammar_process import (
    COMPILE_S,
    COMPILED,
    MEMORY_BYTES,
    TOO_LARGE,
    TOO_LONG,
    GrammarProcess,
    GrammarReply,
    GrammarRequest,
    frame,
    frame_size,
)

_HEADER_BYTES = 4
_KNOWN_MAX = 4096
_SHOWN = 300
_REMEDY = "use fewer and smaller lengths, counts, patterns and alternatives"
_SOURCE_LINE = re.compile(r"^\[[\d:]+\] \S+:\d+: ")
_ALWAYS = "JSON_OBJECT"
"""vLLM's name of the one grammar that no request decides."""
_decoder = msgspec.msgpack.Decoder(GrammarReply)


class GrammarError(ValueError):
    """A grammar that is not compiled; the message names the reason and the remedy."""


class GrammarLimits:
    """Compiles the grammars of one engine instance under limits."""

    def __init__(self, process: GrammarProcess) -> None:
        """Uses a process, which :meth:`close` ends."""
        self._process = process
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()
        self._tenants: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._known: OrderedDict[bytes, GrammarReply] = OrderedDict()

    async def require(self, structured_outputs: Any, tenant: str) -> None:
        """Requires that a request's grammar compiles within the limits.

        Args:
            structured_outputs: vLLM's ``StructuredOutputsParams``.
            tenant: a key of its owner.

        Raises:
            GrammarError: it does not.
            AttemptError: of kind host-crashed; the process has ended.
        """
        from vllm.v1.structured_output.request import (  # noqa: PLC0415 - loaded by the engine
            get_structured_output_key,
        )

        option, spec = get_structured_output_key(structured_outputs)
        if option.name == _ALWAYS:
            return
        reply = await self.compiled(GrammarRequest(option.name, spec), tenant)
        if reply.outcome != COMPILED:
            raise GrammarError(_problem(reply))

    async def compiled(self, request: GrammarRequest, tenant: str) -> GrammarReply:
        """Returns whether a grammar compiles; each is compiled once.

        Args:
            request: the grammar.
            tenant: a key of its owner.

        Raises:
            AttemptError: of kind host-crashed; the process has ended.
        """
        sent = frame(request)
        key = blake3(sent).digest()
        lock = self._tenants.setdefault(tenant, asyncio.Lock())
        if key not in self._known:
            async with lock, self._turn:
                if key not in self._known:
                    # Shielded: a request that is cancelled must not leave its reply to the next.
                    task = asyncio.ensure_future(self._exchange(sent))
                    self._remember(key, await _finished(task))
        self._known.move_to_end(key)
        return self._known[key]

    def close(self) -> None:
        """Ends the process."""
        if self._streams is not None:
            self._streams[1].close()
        self._process.close()

    def _remember(self, key: bytes, reply: GrammarReply) -> None:
        self._known[key] = reply
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    async def _exchange(self, request: bytes) -> GrammarReply:
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(sock=self._process.socket)
            reader, writer = self._streams
            writer.write(request)
            await writer.drain()
            size = frame_size(await reader.readexactly(_HEADER_BYTES))
            return decode(_decoder, await reader.readexactly(size))
        except (OSError, asyncio.IncompleteReadError) as e:
            raise host_crashed("the process that compiles grammars has ended", e) from e


async def _finished(task: "asyncio.Future[GrammarReply]") -> GrammarReply:
    """Waits for a task to its end, also where the waiting task is cancelled."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _problem(reply: GrammarReply) -> str:
    match reply.outcome:
        case outcome if outcome == TOO_LONG:
            took = f"compiling its grammar takes more than {COMPILE_S} s of processor time"
            return f"the schema is too complex: {took}; {_REMEDY}"
        case outcome if outcome == TOO_LARGE:
            took = f"compiling its grammar takes more than {MEMORY_BYTES >> 20} MiB"
            return f"the schema is too complex: {took}; {_REMEDY}"
        case _:
            why = _SOURCE_LINE.sub("", reply.message).strip()[:_SHOWN]
            return f"the schema cannot be compiled: {why}"
