"""Fetches inputs and checkpoints of attempts, and stores their outputs.

The shell calls it with the worker agent's instructions; the answers are events. Paths, contents of
files and tasks stay here. It makes no decisions.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import Assignment
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent.instructions import DropAttempt
from flowmesh_worker.agent.checkpoints import Checkpoints
from flowmesh_worker.data.column_check import missing_column_failure
from flowmesh_worker.data.inputs import Inputs
from flowmesh_worker.data.outputs import Outputs, missing_output_failure
from flowmesh_worker.engines.registry import Engines
from flowmesh_worker.failures import store_failure
from flowmesh_worker.ipc.frames import AttemptEnded, HostInput, HostOutput, RunAttempt
from flowmesh_worker.log_format import attempt_fields

_UNREMARKABLE = frozenset({FailureKind.CANCELLED.value, FailureKind.DRAINED.value})
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _AttemptFiles:
    """Files of one attempt; ``pins`` keeps cached ones on the disk until it is closed."""

    assignment: Assignment
    inputs: dict[str, HostInput] = field(default_factory=dict)
    resume: HostInput | None = None
    outputs: dict[str, HostOutput] = field(default_factory=dict)
    pins: AsyncExitStack | None = None
    task: "asyncio.Task[None] | None" = None


class AttemptData:
    """The inputs, checkpoints and outputs of all attempts."""

    def __init__(
        self,
        engines: Engines,
        inputs: Inputs,
        outputs: Outputs,
        checkpoints: Checkpoints,
        post: Callable[[e.Event], None],
    ) -> None:
        self._engines = engines
        self._inputs = inputs
        self._outputs = outputs
        self._checkpoints = checkpoints
        self._post = post
        self._attempts: dict[str, _AttemptFiles] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def fetch(self, assignment: Assignment) -> None:
        """Fetches the inputs; those that came with the assignment are ready at once."""
        files = self._attempts[assignment.attempt_id] = _AttemptFiles(assignment)
        try:
            inline = self._inputs.inline_inputs(assignment)
        except Exception as error:
            failure = store_failure(error, "an input could not be read")
            self._post(e.InputsFailed(assignment.attempt_id, failure))
            return
        if inline is not None:
            self._ready(files, inline)
        else:
            self._do(files, self._fetch(files))

    def fetch_checkpoint(self, attempt_id: str) -> None:
        """Fetches the checkpoint at which an attempt begins."""
        files = self._attempts[attempt_id]
        self._do(files, self._fetch_checkpoint(files))

    def flush_checkpoints(self, attempt_id: str) -> None:
        """Finishes storing the checkpoints of an attempt."""
        self._do(self._attempts[attempt_id], self._flush_checkpoints(attempt_id))

    def take_checkpoint(self, attempt_id: str, path: str, done: float) -> None:
        """Takes a checkpoint over from a host, unless its attempt has ended."""
        if attempt_id in self._attempts:
            self._checkpoints.take(self._attempts[attempt_id].assignment, path, done)

    def run_message(self, attempt_id: str) -> RunAttempt:
        """Returns the message with which a host runs an attempt."""
        files = self._attempts[attempt_id]
        a = files.assignment
        return RunAttempt(
            attempt_id=a.attempt_id,
            action_id=a.action_id,
            params=a.params,
            fields=a.fields,
            inputs=files.inputs,
            row_output=a.row_output,
            cache_salt=a.cache_salt,
            priority=a.priority,
            secrets=a.secrets,
            resume=files.resume,
            secret_hosts=a.secret_hosts,
            tenant=a.tenant,
        )

    def components(self, assignment: Assignment) -> dict[str, HostInput]:
        """Returns what a host must load for an attempt, by port, without mixable components.

        Those come with each attempt.
        """
        contract = self._engines.contract(assignment.engine)
        mixable = {p.name for p in contract.inputs if p.mixable} if contract else set()
        inputs = self._attempts[assignment.attempt_id].inputs
        return {p: inputs[p] for p in assignment.components if p in inputs and p not in mixable}

    def ended(self, instance_id: int, message: AttemptEnded) -> None:
        """Posts that a host has ended an attempt, with the outputs if all fit into a report."""
        files = self._attempts.get(message.attempt_id)
        failure, stored = message.failure, None
        if files is not None and message.verified:
            self._inputs.remember(files.assignment, files.inputs, message.verified)
        if files is not None and failure is not None:
            failure = self._inputs.with_manifests(files.assignment, failure)
        if failure is None and files is not None:
            a = files.assignment
            failure = missing_output_failure(
                self._engines.contract(a.engine), a.params, message.outputs
            )
            files.outputs = message.outputs
            try:
                stored = Outputs.inline(message.outputs)
            except Exception as error:  # an engine may return anything
                failure = failure or store_failure(error, "an output could not be stored")
        used = message.usage
        self._post(
            e.AttemptFinished(
                instance_id,
                message.attempt_id,
                failure=failure,
                keeps_files=message.keeps_files,
                outputs=stored[0] if stored else None,
                inline=stored[1] if stored else {},
                usage=e.AttemptUsage(
                    used.run_s,
                    used.units,
                    used.tokens_in,
                    used.tokens_out,
                    used.joules,
                    used.peak_memory_mib,
                ),
                libraries=message.libraries,
            )
        )

    def store(self, attempt_id: str) -> None:
        """Stores the outputs of an attempt."""
        files = self._attempts[attempt_id]
        self._do(files, self._store(files))

    def drop(self, instruction: DropAttempt) -> None:
        """Stops fetching and storing for an attempt that has ended, and releases its inputs."""
        a, failure = instruction.assignment, instruction.failure
        if failure is not None and failure.kind not in _UNREMARKABLE:
            text = "%s failed: %s: %s"
            _log.warning(text, a.engine, failure.kind, failure.message, extra=attempt_fields(a))
        self._checkpoints.forget(a.attempt_id)
        self._release(a.attempt_id)

    async def close(self) -> None:
        """Stops everything and releases all inputs; one that cannot be released is left."""
        for attempt_id in list(self._attempts):
            self._release(attempt_id)
        while self._closing:
            await asyncio.wait(self._closing)

    def _release(self, attempt_id: str) -> None:
        files = self._attempts.pop(attempt_id, None)
        if files is not None and (files.task is not None or files.pins is not None):
            if files.task is not None:
                files.task.cancel()
            task = asyncio.get_running_loop().create_task(_close(files))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _fetch(self, files: _AttemptFiles) -> None:
        a = files.assignment
        try:
            refusal = await self._inputs.misfit(a)
            if refusal is not None:
                self._post(e.InputsFailed(a.attempt_id, refusal))
                return
            inputs = await self._inputs.fetch(a, _pins(files))
        except Exception as error:
            failure = store_failure(error, "an input could not be fetched")
            self._post(e.InputsFailed(a.attempt_id, failure))
        else:
            self._ready(files, inputs)

    def _ready(self, files: _AttemptFiles, inputs: dict[str, HostInput]) -> None:
        a = files.assignment
        files.inputs = inputs
        try:
            refusal = missing_column_failure(self._engines.contract(a.engine), a.params, inputs)
        except Exception as error:
            refusal = store_failure(error, "the columns of the input could not be checked")
        if refusal is not None:
            self._post(e.InputsFailed(a.attempt_id, refusal))
        else:
            self._post(e.InputsReady(a.attempt_id))

    async def _fetch_checkpoint(self, files: _AttemptFiles) -> None:
        a = files.assignment
        try:
            files.resume, unusable = await self._checkpoints.fetch(a, _pins(files))
        except Exception as error:
            failure = store_failure(error, "the checkpoint could not be fetched")
            self._post(e.InputsFailed(a.attempt_id, failure))
        else:
            self._post(e.CheckpointFetched(a.attempt_id, unusable))

    async def _flush_checkpoints(self, attempt_id: str) -> None:
        await self._checkpoints.settled(attempt_id)
        self._post(e.CheckpointsFlushed(attempt_id))

    async def _store(self, files: _AttemptFiles) -> None:
        a = files.assignment
        try:
            contract = self._engines.contract(a.engine)
            stored = await self._outputs.store(files.outputs, contract, a.token)
        except Exception as error:
            failure = store_failure(error, "an output could not be stored")
            self._post(e.OutputsFailed(a.attempt_id, failure))
        else:
            self._post(e.OutputsStored(a.attempt_id, *stored))

    @staticmethod
    def _do(files: _AttemptFiles, work: Coroutine[Any, Any, None]) -> None:
        files.task = asyncio.get_running_loop().create_task(work)


def _pins(files: _AttemptFiles) -> AsyncExitStack:
    files.pins = files.pins or AsyncExitStack()
    return files.pins


async def _close(files: _AttemptFiles) -> None:
    if files.task is not None:
        await asyncio.wait([files.task])
    if files.pins is not None:
        await files.pins.aclose()
