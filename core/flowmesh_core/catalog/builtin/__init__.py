"""The contracts of the engines that come with the project.

The control plane and the CLI load them through the entry point ``flowmesh.contracts``, as they load
those of plugins. The engines themselves are in the worker.
"""

from flowmesh_core.catalog.builtin.agent import CONTRACTS as AGENT
from flowmesh_core.catalog.builtin.code import CONTRACTS as CODE
from flowmesh_core.catalog.builtin.data import CONTRACTS as DATA
from flowmesh_core.catalog.builtin.evaluate import CONTRACTS as EVAL
from flowmesh_core.catalog.builtin.http import CONTRACTS as HTTP
from flowmesh_core.catalog.builtin.importing import CONTRACTS as IMPORTING
from flowmesh_core.catalog.builtin.llm import CONTRACTS as LLM
from flowmesh_core.catalog.builtin.models import CONTRACTS as MODELS
from flowmesh_core.catalog.builtin.retrieve import CONTRACTS as RETRIEVE
from flowmesh_core.catalog.builtin.scoring import CONTRACTS as SCORING
from flowmesh_core.catalog.builtin.testing import CONTRACTS as TESTING
from flowmesh_core.catalog.builtin.train import CONTRACTS as TRAIN
from flowmesh_core.catalog.builtin.train_rl import CONTRACTS as TRAIN_RL
from flowmesh_core.catalog.contract import EngineContract


def contracts() -> tuple[EngineContract, ...]:
    """Returns every built-in contract."""
    return (
        *LLM,
        *AGENT,
        *SCORING,
        *MODELS,
        *TRAIN,
        *TRAIN_RL,
        *DATA,
        *CODE,
        *EVAL,
        *HTTP,
        *IMPORTING,
        *RETRIEVE,
        *TESTING,
    )
