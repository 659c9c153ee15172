"""The worker process: ``python -m flowmesh_worker``.

Started by worker pools, by ``fmesh`` and by hand. It assembles settings, store, engines and the
worker agent, and turns errors into an exit code; it makes no decisions of its own.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack
from functools import partial

from flowmesh_core.errors import FlowMeshError
from flowmesh_store.blob_service.views import is_blob_service, open_blob_service
from flowmesh_store.blobs import BlobViews
from flowmesh_store.reachability import look_at
from flowmesh_store.retrying_blobs import RetryingViews, with_retries
from flowmesh_store.store import open_store
from flowmesh_worker.agent.agent import Agent
from flowmesh_worker.agent.store_watch import StoreWatch
from flowmesh_worker.energy import EnergyMeter, NvmlMeter, RaplMeter
from flowmesh_worker.engines.code.call_limits import machine_groups
from flowmesh_worker.engines.code.sandbox_level import CodeSandbox, detect_level
from flowmesh_worker.engines.code.sidecar_client import VARIABLE, describe_sidecar
from flowmesh_worker.engines.registry import installed_engines
from flowmesh_worker.log_format import formatter
from flowmesh_worker.serving.hub_process import HubProcess
from flowmesh_worker.settings import WorkerSettings, parse_settings
from flowmesh_worker.shape import describe, find_devices, nvml
from flowmesh_worker.supported_pythons import unsupported

EXIT_REFUSED = 3
_log = logging.getLogger(__name__)
YOUNG_OBJECTS = 10_000
"""Allocations less deallocations between two collections of the youngest generation."""


def main() -> None:
    """Runs a worker until it is stopped; exits with 3 and a message if it cannot run."""
    settings = parse_settings()
    try:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(formatter(os.environ, settings.name))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        if warning := unsupported():
            _log.warning("%s", warning)
        sandbox = CodeSandbox()
        if settings.allow_user_code:
            # Engine hosts find the delegated control group ready, since none runs yet.
            if isinstance(reason := machine_groups(), str):
                _log.warning("user code runs here without a memory group: %s", reason)
            sandbox = _code_sandbox()
        asyncio.run(run_worker(settings, sandbox))
    except FlowMeshError as error:
        sys.stderr.write(f"{settings.name}: {error}\n")
        sys.exit(EXIT_REFUSED)


def _code_sandbox() -> CodeSandbox:
    """Returns what separates users' code here; needs a process with a single thread.

    Raises:
        FlowMeshError: the container of users' code does not answer.
    """
    socket = os.environ.get(VARIABLE)
    if not socket:
        return CodeSandbox(detect_level(root=os.geteuid() == 0))
    try:
        return asyncio.run(describe_sidecar(socket))
    except OSError as error:
        raise FlowMeshError(
            f"the container that runs users' code does not answer: {error}",
            remedy="see why with kubectl logs -c code",
        ) from error


async def run_worker(settings: WorkerSettings, sandbox: CodeSandbox) -> None:
    """Runs a worker until SIGTERM, SIGINT, a drain, or ``orphan_timeout_s`` without control plane.

    Args:
        settings: from the command line.
        sandbox: of users' code.

    Raises:
        RefusedForGoodError: the control plane refused this worker permanently.
        StoreError: the store or the cache directory cannot be used.
    """
    async with AsyncExitStack() as stack:
        devices = None if settings.cpu_only else find_devices()
        engines = installed_engines(on_devices=devices is not None)
        views, watch = await _open_store(settings, stack)
        meter: EnergyMeter | None = None
        if devices is not None:
            meter = NvmlMeter(stack.enter_context(nvml()))
        elif (rapl := RaplMeter()).available:
            meter = rapl
        shape = describe(settings, devices, engines, sandbox)
        agent = Agent(
            settings,
            shape,
            engines,
            views,
            watch,
            devices=devices,
            meter=meter,
            hub=lambda post: HubProcess(settings.name, post, settings.peer_port),
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, agent.stop)
        # What is imported by now stays, and attempts create no reference cycles: frequent
        # collections would only scan live objects.
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        await agent.run()


async def _open_store(
    settings: WorkerSettings, stack: AsyncExitStack
) -> tuple[BlobViews, StoreWatch]:
    """Opens the store, or the blob service in its place; it is closed with the stack.

    Raises:
        StoreError: the store cannot be used.
    """
    if is_blob_service(settings.store):
        opened = open_blob_service(
            settings.store, authority=settings.gateway_ca, store_authority=settings.store_ca
        )
        service = await stack.enter_async_context(opened)
        return RetryingViews(service), StoreWatch(service.look)
    store = open_store(settings.store, grace_s=settings.store_grace_s)
    stack.callback(store.close)
    return with_retries(store), StoreWatch(partial(look_at, store))


if __name__ == "__main__":
    main()
