"""Parameters and identity fields that a contract got later, in one of its minors.

While such a one has its default it is left out of the action id and the signature, so that adding
it empties no cache. Where it is set, only a worker that knows the minor may run the action.
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.contract import EngineContract, Param
from flowmesh_core.catalog.identity_fields import identity_field
from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_core.identity.coerce import default_of


def needed_minor(
    contract: EngineContract, params: Mapping[str, Any], fields: Mapping[str, Any]
) -> int:
    """Returns the least minor of the contract that knows everything that a step sets.

    Args:
        contract: the engine's contract.
        params: typed; missing ones count as their default.
        fields: the identity fields; likewise.
    """
    if not contract.minor:
        return 0
    given = [p.added for p in contract.params if not is_left_out(p, params)]
    added = contract.added_fields
    given += [n for f, n in added if not is_left_out(_field(contract, f, n), fields)]
    return max(given, default=0)


def is_left_out(param: Param, values: Mapping[str, Any]) -> bool:
    """Whether a parameter was added later and has its default."""
    if not param.added:
        return False
    if param.name not in values:
        return True
    return canonical_bytes(values[param.name]) == canonical_bytes(default_of(param))


def without_additions(contract: EngineContract, params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters without those that were added later and have their default."""
    left_out = {p.name for p in contract.params if is_left_out(p, params)}
    return {name: value for name, value in params.items() if name not in left_out}


def identity_fields(contract: EngineContract, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the contract's identity fields without those likewise."""
    added = dict(contract.added_fields)
    return {
        name: fields.get(name, default_of(identity_field(contract, name)))
        for name in contract.identity_fields
        if not is_left_out(_field(contract, name, added.get(name, 0)), fields)
    }


def _field(contract: EngineContract, name: str, added: int) -> Param:
    field = identity_field(contract, name)
    return Param(name, field.type, default=field.default, added=added)
