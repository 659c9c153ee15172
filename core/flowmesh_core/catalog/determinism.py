"""The class of a step's results, given its parameters and identity fields.

A contract states the class of its results. But without batch invariance an engine's numbers depend
on the rest of its batch, so that seeds no longer fix them, and a parameter may make a step call the
outside world.
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.contract import Determinism, EngineContract
from flowmesh_core.catalog.resolved_contract import any_met

_EXTERNAL = Determinism.EXTERNAL
_SEEDED = Determinism.SEEDED
"""Local names: to look a member of an enum up takes 0.2 us in Python 3.11."""


def determinism_of(
    contract: EngineContract, params: Mapping[str, Any], fields: Mapping[str, Any]
) -> Determinism:
    """Returns the class of results of one step.

    Args:
        contract: its engine's contract.
        params: its parameters after defaults.
        fields: its resolved identity fields.

    Returns:
        ``external`` where a choice of ``external_with`` is met; otherwise the contract's class, but
        ``sampled`` in place of ``seeded`` where ``batchInvariant`` is one of the contract's
        identity fields and switched off, or where a value of ``sampled_with`` is met.
    """
    if any_met(contract.external_with, params):
        return _EXTERNAL
    invariant = "batchInvariant" not in contract.identity_fields or fields.get(
        "batchInvariant", True
    )
    sampled = not invariant or any_met(contract.sampled_with, fields)
    if contract.determinism is _SEEDED and sampled:
        return Determinism.SAMPLED
    return contract.determinism
