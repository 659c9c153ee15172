"""Imports an engine's libraries in a standby host, before it is known what the host will load.

Importing takes most of a small engine's start (docs/benchmarks.md) and does not depend on what is
loaded afterwards. An engine class declares its preload by a static method ``prepares``, which gets
the signature's parameters and whether the host owns devices, and must not import heavy libraries.
Standby hosts with the same preload are interchangeable.
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flowmesh_worker.engines.environment import apply_environment, import_environment


@dataclass(frozen=True, slots=True)
class HostPreload:
    """The modules that a standby host imports.

    Attributes:
        name: the library, for log lines.
        modules: the modules to import; they must not start thread pools or use devices.
        memory_mib: host memory that a standby host uses.
    """

    name: str
    modules: tuple[str, ...]
    memory_mib: int


_VLLM = ("vllm.v1.engine.async_llm", "vllm.v1.engine.core")
VLLM_ON_CPU = HostPreload("vLLM", (*_VLLM, "vllm.v1.worker.cpu_worker"), 700)
VLLM_ON_DEVICES = HostPreload("vLLM", (*_VLLM, "vllm.v1.worker.gpu_worker"), 700)
_TORCH_MODEL = ("flowmesh_worker.engines.llm.torch_model", "transformers.modeling_utils")
TRANSFORMERS = HostPreload("transformers", _TORCH_MODEL, 500)
TRL = HostPreload(
    "TRL",
    (
        "flowmesh_worker.engines.train.base_model",
        "flowmesh_worker.engines.train.session",
        "peft",
        "trl.trainer.sft_trainer",
    ),
    600,
)


def preload_of_implementation(params: Mapping[str, Any], *, on_devices: bool) -> HostPreload | None:
    """Returns the preload of an engine that serves with the signature's implementation.

    Args:
        params: of the signature.
        on_devices: whether the host owns devices.
    """
    if params.get("implementation", "vllm") != "vllm":
        return TRANSFORMERS
    if not on_devices:
        return VLLM_ON_CPU
    # vLLM reads VLLM_BATCH_INVARIANT on import; ``prepare`` sets it to 1.
    return VLLM_ON_DEVICES if params.get("batchInvariant", True) else None


def prepare(modules: Iterable[str], threads: int, *, on_devices: bool) -> None:
    """Sets the environment and imports the modules.

    Args:
        modules: as in :class:`HostPreload`.
        threads: CPU threads that it may use.
        on_devices: whether it will own devices.
    """
    apply_environment(import_environment(threads, on_devices=on_devices, batch_invariant=True))
    for module in modules:
        importlib.import_module(module)
