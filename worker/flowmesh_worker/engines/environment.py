"""The environment variables that torch, transformers and vLLM read when they are imported.

An engine host runs one engine instance, so the engine may set them; ``load`` does so before it
imports the libraries. Variables that the worker's owner has set are not overridden.
"""

import os
from collections.abc import Mapping

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.ipc.host_directory import socket_folder


def library_environment(settings: HostSettings, *, batch_invariant: bool) -> dict[str, str]:
    """Returns the variables for one host, and creates the folder for its sockets.

    Args:
        settings: devices and threads.
        batch_invariant: whether results must not depend on the batch.
    """
    on_devices = bool(settings.devices)
    sockets = socket_folder(settings.scratch)
    sockets.mkdir(mode=0o700, exist_ok=True)
    return {
        **import_environment(
            settings.threads, on_devices=on_devices, batch_invariant=batch_invariant
        ),
        "VLLM_RPC_BASE_PATH": str(sockets),
    }


def import_environment(threads: int, *, on_devices: bool, batch_invariant: bool) -> dict[str, str]:
    """Returns the variables that do not depend on what a host will load.

    Args:
        threads: CPU threads that it may use.
        on_devices: whether it owns devices.
        batch_invariant: whether results must not depend on the batch.
    """
    out = {
        "HF_HUB_OFFLINE": "1",  # the model is a local directory
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_HOST_IP": "127.0.0.1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "OMP_NUM_THREADS": str(max(1, threads)),
        # Idle threads sleep: spinning threads would slow every other host on the machine.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    if on_devices:
        out["VLLM_BATCH_INVARIANT"] = "1" if batch_invariant else "0"
    return out


def apply_environment(variables: Mapping[str, str]) -> None:
    """Sets the variables that are not set yet."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)
