"""Sets the environment variables and log levels of a host that trains."""

import logging
import warnings

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.environment import apply_environment, library_environment

_LOUD = ("transformers", "trl", "peft", "accelerate", "datasets", "torch", "bitsandbytes")


def prepare_process(settings: HostSettings) -> None:
    """Sets what libraries read when they are imported; must be called before that."""
    variables = library_environment(settings, batch_invariant=True)
    if settings.devices:
        # Without it cuBLAS sums in a different order in each run.
        variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    apply_environment(variables)
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.ERROR)
    # Users read a host's log: deprecation warnings of libraries do not help them.
    warnings.simplefilter("ignore")
