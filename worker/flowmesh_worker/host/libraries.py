"""The libraries that a host has imported: reported as the provenance of its results."""

import functools
import platform
import sys
from importlib import metadata

from flowmesh_worker.llm_settings import EAGER, pool_llm_settings

_RELEVANT = {
    "torch": "torch",
    "vllm": "vllm",
    "transformers": "transformers",
    "trl": "trl",
    "peft": "peft",
    "duckdb": "duckdb",
    "pyarrow": "pyarrow",
}


def loaded_libraries() -> dict[str, str]:
    """Returns the versions of Python and of the imported libraries that results may depend on."""
    found = {"python": platform.python_version()}
    for module, name in _RELEVANT.items():
        loaded = sys.modules.get(module)
        if loaded is not None:
            found[name] = str(getattr(loaded, "__version__", None) or _installed(name))
    if "vllm" in found and pool_llm_settings().enforce_eager:
        found[EAGER] = "true"
    return found


@functools.cache
def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
