"""Evaluates conditions for runs and forecasts: in this process, or in a sandboxed one.

Inline evaluation is for a control plane whose runs all have one owner. Elsewhere a child evaluates
one condition after the other. The steps of an evaluation are counted in both, so the results are
equal; the child's memory and processor time are a second limit.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from flowmesh_control.evaluators.condition_messages import (
    CONDITION_S,
    ConditionReads,
    ConditionReply,
    ConditionRequest,
    Evaluate,
    Evaluated,
    ParseCondition,
)
from flowmesh_control.evaluators.framing import BrokenFrameError
from flowmesh_control.evaluators.process import (
    MEMORY_BYTES,
    EvaluatorEndedError,
    EvaluatorProcess,
    EvaluatorTimeoutError,
)
from flowmesh_core.decoding import decode
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.graph.conditions import (
    ConditionQuery,
    ConditionVerdict,
    StepValues,
    select,
    verdict_of,
)
from flowmesh_core.graph.evaluation_budget import REMEDY, outweighs, shown, too_many_steps

DEADLINE_S = 10.0
"""Wall time of one request: generous, because the machine may be busy. Processor time is bounded
to a second by the child itself."""
_REPLY_BYTES_MAX = 1 << 20
_PATHS_MAX = 1024
_Paths = tuple[tuple[str, ...], ...]
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[ConditionReply] = msgspec.msgpack.Decoder(ConditionReply)


class InlineConditions:
    """Evaluates conditions in this process."""

    async def evaluate(self, query: ConditionQuery) -> ConditionVerdict:
        """As :meth:`ConditionEvaluator.evaluate`."""
        return verdict_of(query)

    async def close(self) -> None:
        """Does nothing."""


class SandboxedConditions:
    """Evaluates conditions in a child, which is started when it is first needed."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        """Starts nothing yet.

        Args:
            deadline_s: wall time of one request.
        """
        self.process = EvaluatorProcess("conditions", longest_reply_bytes=_REPLY_BYTES_MAX)
        self._deadline_s = deadline_s
        self._one_at_a_time = asyncio.Lock()
        self._paths: dict[str, _Paths] = {}

    async def evaluate(self, query: ConditionQuery) -> ConditionVerdict:
        """As :meth:`ConditionEvaluator.evaluate`.

        Raises:
            EvaluatorUnavailableError: no child can be started now.
        """
        async with self._one_at_a_time:
            try:
                return await self.process.call(lambda: self._exchange(query), self._deadline_s)
            except EvaluatorTimeoutError as e:
                within = f"was not evaluated within {self._deadline_s:g} s"
                used_up = f"needs more than {CONDITION_S:g} s of processor time"
                return _stopped(query, within if e.waited else used_up)
            except EvaluatorEndedError as e:
                return _stopped(query, _ended(e.code))

    async def close(self) -> None:
        """Ends the child."""
        await self.process.kill()

    async def _exchange(self, query: ConditionQuery) -> ConditionVerdict:
        # The child says where the condition looks, so that only these values are sent. Encoding is
        # left to a thread, since they may still be large.
        request = await asyncio.to_thread(_request, query, await self._reads(query.text))
        if isinstance(request, ConditionVerdict):
            return request
        reply = await self._ask(request)
        if not isinstance(reply, Evaluated):
            raise BrokenFrameError("another reply")
        return reply.verdict

    async def _reads(self, text: str) -> _Paths:
        paths = self._paths.get(text)
        if paths is None:
            reply = await self._ask(_encoder.encode(ParseCondition(text)))
            if not isinstance(reply, ConditionReads):
                raise BrokenFrameError("another reply")
            if len(self._paths) >= _PATHS_MAX:
                self._paths.clear()
            paths = self._paths[text] = reply.paths
        return paths

    async def _ask(self, request: bytes) -> ConditionReply:
        await self.process.send(request)
        return decode(_decoder, await self.process.receive())


def _request(query: ConditionQuery, paths: _Paths) -> bytes | ConditionVerdict:
    """Returns the request with the values that the condition reads; a verdict if they are too many.

    Runs in a thread.
    """
    roots = {"params": query.params, "matrix": query.matrix, "steps": query.steps}
    read = select(roots, paths)
    if outweighs(read, query.granted):
        message = too_many_steps(query.text, remaining=query.granted, total=query.run_total)
        return _failed(message, steps=query.granted + 1)
    skipped = {path: None for path, fields in query.steps.items() if fields is None}
    sent = msgspec.structs.replace(
        query,
        params=read.get("params", {}),
        matrix=read.get("matrix", {}),
        steps={
            **skipped,
            **{path: _explained(r, query.steps[path]) for path, r in read.get("steps", {}).items()},
        },
    )
    request: ConditionRequest = Evaluate(sent)
    try:
        return _encoder.encode(request)
    except (TypeError, ValueError, OverflowError, RecursionError) as e:
        return _failed(f"the condition {shown(query.text)!r} reads a value that is not JSON: {e}")


def _explained(read: Any, step: StepValues | None) -> Any:
    """Adds a judge's counts of answers, which the error of a mean that is null names."""
    counts = step.get("counts", {}) if step else {}
    if not isinstance(read, Mapping) or not counts.get("unparsed"):
        return read
    named = {name: counts[name] for name in ("rows", "unparsed") if name in counts}
    return {**read, "counts": {**named, **read.get("counts", {})}}


def _stopped(query: ConditionQuery, why: str) -> ConditionVerdict:
    """Returns the verdict where the evaluation was stopped: all of its steps are spent."""
    return _failed(f"the condition {shown(query.text)!r} {why}", steps=query.granted)


def _ended(code: int) -> str:
    return (
        f"was not evaluated: the process ended twice, at last with code {code}; it may have needed"
        f" more than {MEMORY_BYTES['conditions'] >> 20} MiB of memory"
    )


def _failed(message: str, steps: int = 0) -> ConditionVerdict:
    return ConditionVerdict(steps=steps, failure=Failure(FailureKind.BAD_INPUT, message, REMEDY))
