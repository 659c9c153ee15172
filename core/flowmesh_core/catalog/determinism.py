"""What a second run of a step gives, once its identity fields are known.

A contract states the class of its results; without batch invariance an engine's numbers depend on
what else is in its batch, so that seeds no longer fix them (DESIGN §4).
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.contract import Determinism, EngineContract


def determinism_of(contract: EngineContract, fields: Mapping[str, Any]) -> Determinism:
    """The class of results of one step.

    Args:
        contract: its engine's contract.
        fields: its resolved identity fields.

    Returns:
        The contract's class, but ``sampled`` in place of ``seeded`` where ``batchInvariant`` is one
        of the contract's identity fields and switched off.
    """
    invariant = "batchInvariant" not in contract.identity_fields or fields.get(
        "batchInvariant", True
    )
    if contract.determinism is Determinism.SEEDED and not invariant:
        return Determinism.SAMPLED
    return contract.determinism
