"""The process environment of a host that trains, and how quiet its libraries are."""

import logging
import warnings

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.environment import apply_environment, library_environment

_LOUD = ("transformers", "trl", "peft", "accelerate", "datasets", "torch", "bitsandbytes")


def prepare_process(settings: HostSettings) -> None:
    """Sets what libraries read once, before any of them is imported."""
    variables = library_environment(settings, batch_invariant=True)
    if settings.devices:
        # Without it cuBLAS sums in an order that differs from run to run.
        variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    apply_environment(variables)
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.ERROR)
    # A host's log belongs to the user: what its libraries plan to change says nothing to them.
    warnings.simplefilter("ignore")
