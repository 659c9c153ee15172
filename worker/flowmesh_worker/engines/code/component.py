"""The engine ``code.component``: hosts the Python components of a service.

Code runs in a resident sandbox of the host's namespace, without network. Code that its service
calls trusted runs in the host itself, where the worker's owner allows that.
"""

import asyncio
import os
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

import msgspec

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_core.protocol.serving import (
    DEADLINE,
    FAILED,
    FULL,
    LOST,
    OK,
    CallEnded,
    ComponentCall,
    ComponentProfile,
)
from flowmesh_core.stages.service_graph import COMPONENTS_PATH
from flowmesh_worker.engine_api import (
    ComponentEnd,
    HostSettings,
    Progress,
    Result,
    ServingAnswer,
    ServingCall,
    TreeInput,
    Work,
)
from flowmesh_worker.engines.code.chain_results import ChainResult, LateError, QueueFullError
from flowmesh_worker.engines.code.component_batches import ComponentBatches
from flowmesh_worker.engines.code.component_code import loaded_code
from flowmesh_worker.engines.code.component_frames import LoadedCode, ResultKind
from flowmesh_worker.engines.code.component_queue import QUEUED_PER_BATCH
from flowmesh_worker.engines.code.local_residents import LocalResidents
from flowmesh_worker.engines.code.sandboxed_code import SandboxedCode
from flowmesh_worker.engines.code.sidecar_client import VARIABLE as SIDECAR
from flowmesh_worker.engines.code.sidecar_residents import SidecarResidents
from flowmesh_worker.engines.code.trusted_code import TrustedCode
from flowmesh_worker.ipc.passed_values import StageBytes

TRUSTED_VARIABLE = "FLOWMESH_TRUSTED_CODE"
"""Set to 1 by the owner of a worker that may run trusted components outside the sandbox."""
_BAD_REQUEST, _TOO_MANY, _SERVER_ERROR, _TIMEOUT = 400, 429, 500, 504


class Component:
    """The engine ``code.component``; see :class:`flowmesh_worker.engine_api.Engine`."""

    capacity = 1

    def __init__(self) -> None:
        self._components: tuple[LoadedCode, ...] = ()
        self._batches: ComponentBatches | None = None
        self._runner: SandboxedCode | TrustedCode
        self._changed: Callable[[], None] = lambda: None

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads the code.

        Raises:
            AttemptError: the code does not load, or this worker may not run it.
        """
        del components
        params = settings.signature_params
        self._components = loaded_code(params["components"])
        self._runner = await self._started(params, settings)
        on_late = str(params["onLate"])
        self._batches = ComponentBatches(
            self._components, self._runner, on_late, self._profile_changed
        )

    async def run(self, work: Work, progress: Progress) -> Result:
        """Runs no steps.

        Raises:
            AttemptError: always.
        """
        raise AttemptError(
            Failure(
                FailureKind.BAD_INPUT,
                "code.component answers stages of services, not steps of workflows",
                "use code.python",
            )
        )

    async def close(self) -> None:
        """Ends the code."""
        if self._batches is not None:
            await self._batches.close()

    def serves(self) -> tuple[tuple[str, ...], int]:
        """See ``Serves``."""
        calls_max = sum((1 + QUEUED_PER_BATCH) * one.batch_max for one in self._components)
        return tuple(COMPONENTS_PATH + one.name for one in self._components), calls_max

    async def answer(self, call: ServingCall) -> ServingAnswer:
        """Answers no requests of OpenAI's API. See ``Serves``."""
        del call
        return ServingAnswer(_BAD_REQUEST, _error("a component answers stages of services"))

    async def stream(self, call: ServingCall) -> AsyncIterator[bytes | ServingAnswer]:
        """As :meth:`answer`. See ``Serves``."""
        yield await self.answer(call)

    # -- as ServesComponents ---------------------------------------------------------------------

    def call_component(
        self, call: ComponentCall, passed: Mapping[str, StageBytes], ended: ComponentEnd
    ) -> asyncio.Future[ChainResult]:
        """See ``ServesComponents``."""
        assert self._batches is not None, "it is loaded"
        running = self._batches.call(call, passed)
        running.add_done_callback(partial(_report, call, ended))
        return running

    def forget_values(self, keys: tuple[str, ...]) -> None:
        """See ``ServesComponents``."""
        self._runner.forget(keys)

    def profiles(self, changed: Callable[[], None]) -> tuple[ComponentProfile, ...]:
        """See ``ServesComponents``."""
        assert self._batches is not None, "it is loaded"
        self._changed = changed
        return self._batches.profiles()

    def _profile_changed(self) -> None:
        self._changed()

    async def _started(
        self, params: Mapping[str, object], settings: HostSettings
    ) -> SandboxedCode | TrustedCode:
        if params["trusted"]:
            return self._trusted()
        container = os.environ.get(SIDECAR)
        residents = SidecarResidents(container) if container else LocalResidents(settings.scratch)
        memory_mib = int(str(params["memoryMib"]))
        namespace = str(params["namespace"])
        code = SandboxedCode(self._components, residents, memory_mib, namespace)
        await code.start()
        return code

    def _trusted(self) -> TrustedCode:
        if os.environ.get(TRUSTED_VARIABLE) != "1":
            raise AttemptError(
                Failure(
                    FailureKind.USER_CODE,
                    "the service calls its code trusted, which this worker does not allow",
                    f"remove `trusted`, or let the worker's owner set {TRUSTED_VARIABLE}=1",
                )
            )
        try:
            return TrustedCode(self._components)
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).strip()
            raise AttemptError(
                Failure(FailureKind.USER_CODE, f"the code does not load: {text}", "correct it")
            ) from error


def _report(call: ComponentCall, ended: ComponentEnd, running: asyncio.Future[ChainResult]) -> None:
    """Reports the end of a call; one that is cancelled has none."""
    if running.cancelled():
        return
    match running.exception():
        case None:
            found = running.result()
            ended(_ended(call.call_id, found), found.result.value)
        case QueueFullError(step=step):
            ended(CallEnded(call.call_id, FULL, _TOO_MANY, step=step), b"")
        case LateError(step=step):
            ended(CallEnded(call.call_id, DEADLINE, _TIMEOUT, step=step), b"")
        case error:
            ended(error, b"")


def _ended(call_id: str, found: ChainResult) -> CallEnded:
    result, step, times = found.result, found.step, found.times
    match result.kind:
        case ResultKind.OK:
            return CallEnded(call_id, OK, body=result.body, step=step, times=times)
        case ResultKind.LOST:
            return CallEnded(call_id, LOST, _SERVER_ERROR, step=step, times=times)
        case ResultKind.BAD_INPUT:
            status, body = _BAD_REQUEST, _error(result.error)
        case _:
            text = f"component {found.call.component} failed: {result.error}"
            status, body = _SERVER_ERROR, _error(text, "user_code")
    return CallEnded(call_id, FAILED, status, body, step=step, times=times)


def _error(message: str, code: str | None = None) -> bytes:
    """Returns an error object in OpenAI's shape."""
    kind = "server_error" if code else "invalid_request_error"
    found = {"message": message, "type": kind, "param": None, "code": code}
    return msgspec.json.encode({"error": found})
