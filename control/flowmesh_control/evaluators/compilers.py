"""Checks and compiles workflows for admission: in this process, or in sandboxed ones.

Inline compilation is for a control plane whose runs all have one owner. Elsewhere at most two
children compile, and a tenant has one of them while others wait.
"""

import asyncio
import pickle
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from flowmesh_api.v1.problems import Problem
from flowmesh_control.evaluators.compilation import (
    CheckedWorkflow,
    CompileRequest,
    CompilerSetup,
    checked,
    compiled,
    parsed,
)
from flowmesh_control.evaluators.fair_places import FairPlaces
from flowmesh_control.evaluators.process import (
    MEMORY_BYTES,
    EvaluatorEndedError,
    EvaluatorProcess,
    EvaluatorTimeoutError,
)
from flowmesh_control.evaluators.workflow_messages import (
    CheckWorkflow,
    CompilerFailed,
    PlanEnd,
    PlanPart,
    WorkflowRefused,
    WorkflowReply,
    WorkflowRequest,
    WorkflowTooLarge,
)
from flowmesh_core.decoding import decode
from flowmesh_core.errors import ContentLimitError, SpecError
from flowmesh_core.graph.plan import Plan, StepPlan
from flowmesh_core.spec.workflow import FlowMeshWorkflow

AT_ONCE = 2
COMPILE_S = 10.0
"""Processor time to check or compile a small workflow."""
STEP_S = 0.0002
"""Processor time for each step after expansion, in addition."""
_STEPS_WITHOUT_THREAD = 50
"""Compiling as many takes a few milliseconds; the hand-over to a thread takes part of one."""
WAIT_FACTOR = 3.0
"""Wall time of a request, as a multiple of its processor time, because the machine may be busy."""
_REPLY_BYTES_MAX = 256 << 20
_SPLIT = "split it into several workflows"
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[WorkflowReply] = msgspec.msgpack.Decoder(WorkflowReply)


class WorkflowCompiler(Protocol):
    """Checks and compiles workflows."""

    async def check(self, document: dict[str, Any]) -> CheckedWorkflow:
        """Returns what admission must know of a document.

        Raises:
            SpecError: everything that is wrong with it.
            ContentLimitError: it is nested too deeply, or takes too long.
            EvaluatorUnavailableError: not now; try again.
        """
        ...

    async def compile(self, request: CompileRequest, workflow: CheckedWorkflow) -> Plan:
        """Returns the plan of a checked workflow; raises as :meth:`check`."""
        ...


class _ParsedWorkflow(CheckedWorkflow, frozen=True):
    """A checked workflow that is not read again to compile it."""

    parsed: FlowMeshWorkflow


class InlineCompiler:
    """Compiles in this process, large workflows in a thread."""

    def __init__(self, setup: CompilerSetup) -> None:
        self._setup = setup

    async def check(self, document: dict[str, Any]) -> CheckedWorkflow:
        """As :meth:`WorkflowCompiler.check`."""
        workflow = parsed(document, self._setup)
        found = checked(workflow)
        return _ParsedWorkflow(found.namespace, found.inputs, found.steps, workflow)

    async def compile(self, request: CompileRequest, workflow: CheckedWorkflow) -> Plan:
        """As :meth:`WorkflowCompiler.compile`."""
        assert isinstance(workflow, _ParsedWorkflow)
        if workflow.steps <= _STEPS_WITHOUT_THREAD:
            return compiled(request, self._setup, workflow.parsed)
        return await asyncio.to_thread(compiled, request, self._setup, workflow.parsed)

    async def close(self) -> None:
        """Does nothing."""


class SandboxedCompiler:
    """Compiles in children, which are started when they are first needed."""

    def __init__(self, setup: CompilerSetup, *, compile_s: float = COMPILE_S) -> None:
        """Starts nothing yet.

        Args:
            setup: what workflows are compiled with.
            compile_s: processor time for a small workflow.
        """
        pickled = pickle.dumps(setup)
        self.processes = [
            EvaluatorProcess("workflows", longest_reply_bytes=_REPLY_BYTES_MAX, setup=pickled)
            for _ in range(AT_ONCE)
        ]
        self._free = list(self.processes)
        self._places = FairPlaces(AT_ONCE)
        self._compile_s = compile_s

    async def check(self, document: dict[str, Any]) -> CheckedWorkflow:
        """As :meth:`WorkflowCompiler.check`."""
        request = CheckWorkflow(document, self._compile_s)
        reply, _ = await self._call(request, self._compile_s, _tenant(document))
        assert isinstance(reply, CheckedWorkflow)
        return reply

    async def compile(self, request: CompileRequest, workflow: CheckedWorkflow) -> Plan:
        """As :meth:`WorkflowCompiler.compile`."""
        seconds = self._compile_s + STEP_S * min(workflow.steps, 1_000_000)
        request = msgspec.structs.replace(request, seconds=seconds)
        reply, steps = await self._call(request, seconds, workflow.namespace)
        assert isinstance(reply, PlanEnd)
        return msgspec.structs.replace(reply.plan, steps=tuple(steps))

    async def close(self) -> None:
        """Ends the children."""
        for process in self.processes:
            await process.kill()

    async def _call(
        self, request: WorkflowRequest, seconds: float, tenant: str
    ) -> tuple[WorkflowReply, list[StepPlan]]:
        try:
            data = await asyncio.to_thread(_encoder.encode, request)
        except OverflowError as e:
            raise SpecError([Problem("", f"an integer has more than 64 bits: {e}")]) from e
        async with self._places.place(tenant):
            process = self._free.pop()
            try:
                return _accepted(
                    *await process.call(lambda: _exchange(process, data), WAIT_FACTOR * seconds)
                )
            except EvaluatorTimeoutError as e:
                within = f"it was not compiled within {WAIT_FACTOR * seconds:.0f} s"
                used_up = f"compiling it takes more than {seconds:.0f} s of processor time"
                raise ContentLimitError(
                    within if e.waited else used_up, where="document", remedy=_SPLIT
                ) from e
            except EvaluatorEndedError as e:
                raise _too_large(f" (its process ended with code {e.code})") from e
            finally:
                self._free.append(process)


async def _exchange(process: EvaluatorProcess, data: bytes) -> tuple[WorkflowReply, list[StepPlan]]:
    await process.send(data)
    steps: list[StepPlan] = []
    while True:
        reply = decode(_decoder, await process.receive())
        if not isinstance(reply, PlanPart):
            return reply, steps
        steps += reply.steps
        await asyncio.sleep(0)  # a frame that is here already does not give way


def _accepted(reply: WorkflowReply, steps: list[StepPlan]) -> tuple[WorkflowReply, list[StepPlan]]:
    match reply:
        case WorkflowRefused():
            raise SpecError(reply.problems)
        case WorkflowTooLarge(deep=True):
            raise nesting_error()
        case WorkflowTooLarge():
            raise _too_large("")
        case CompilerFailed():
            raise RuntimeError(f"compiling failed: {reply.error}")
    return reply, steps


def nesting_error() -> ContentLimitError:
    """Returns the error for a document that is nested too deeply."""
    return ContentLimitError(
        "the document is nested too deeply", where="document", remedy="flatten it"
    )


def _too_large(more: str) -> ContentLimitError:
    return ContentLimitError(
        f"compiling it needs more than {MEMORY_BYTES['workflows'] >> 20} MiB of memory{more}",
        where="document",
        remedy=_SPLIT,
    )


def _tenant(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    return namespace if isinstance(namespace, str) else ""
