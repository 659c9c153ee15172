"""What a host can do before it knows what it will load: import its engine's libraries.

Importing takes most of a small engine's start (docs/benchmarks.md), and is the same whatever is
loaded afterwards. An engine class names its preparation by a static method ``prepares``, which is
given the signature's parameters and whether the host owns devices; it answers without loading
heavy libraries. Hosts with the same preparation are alike until they load.
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flowmesh_worker.engines.environment import apply_environment, import_environment


@dataclass(frozen=True, slots=True)
class HostPreload:
    """One way to prepare a host.

    Attributes:
        name: the library, for people.
        modules: what is imported. It starts no thread pool and touches no device.
        memory_mib: what a prepared host holds of the machine's memory.
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


def of_implementation(params: Mapping[str, Any], *, on_devices: bool) -> HostPreload | None:
    """The preparation of an engine that serves with the library which its signature names.

    Args:
        params: of the signature.
        on_devices: whether the host owns devices.
    """
    if params.get("implementation", "vllm") != "vllm":
        return TRANSFORMERS
    if not on_devices:
        return VLLM_ON_CPU
    # vLLM reads on import whether results must not depend on the batch.
    return VLLM_ON_DEVICES if params.get("batchInvariant", True) else None


def prepare(modules: Iterable[str], threads: int, *, on_devices: bool) -> None:
    """Brings this process as far as it can be without knowing what it will load.

    Args:
        modules: as in :class:`HostPreload`.
        threads: CPU threads that it may use.
        on_devices: whether it will own devices.
    """
    apply_environment(import_environment(threads, on_devices=on_devices, batch_invariant=True))
    for module in modules:
        importlib.import_module(module)
