"""Signature classes, and the salt that a quarantine adds to the names of their actions.

A class is a signature without its resource class: everything that could have produced the results
of its actions, and nothing that an action's name does not contain already. So the salt depends only
on what an action's name contains in any case, and equal actions keep equal names (ADR 8).
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.identity.action import signature
from flowmesh_core.units import Digest

Salts = Mapping[Digest, int]
"""Signature class → how often it was quarantined; other classes are left out."""


def signature_class(
    contract: EngineContract,
    params: Mapping[str, Any],
    fields: Mapping[str, Any],
    inputs: Mapping[str, Digest],
) -> Digest:
    """Returns the class of an action.

    Args:
        contract: its engine's.
        params: as for :func:`flowmesh_core.identity.action.action_id`.
        fields: likewise.
        inputs: the digest on each input port; only components enter.

    Raises:
        IdentityError: a parameter has no canonical form.
    """
    ports = {name: contract.input_port(name) for name in inputs}
    loaded = {name: inputs[name] for name, port in ports.items() if port and port.component}
    return signature(contract, params, fields, loaded, "")


def salt_of(salts: Salts, found: Digest) -> str:
    """Returns what a quarantine adds to the salt of this class's actions; empty without one."""
    bump = salts.get(found, 0)
    return f"quarantine:{bump}" if bump else ""
