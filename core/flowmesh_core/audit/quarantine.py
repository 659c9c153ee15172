"""Signature classes, and the salt that a quarantine puts into the names of their actions.

A class is a signature without its resource class: everything that could have made the results of
its actions, and nothing that an action's name does not hold already. So the salt of a quarantine is
a function of what names an action anyway: equal actions go on to have equal names.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.identity.action import signature
from flowmesh_core.protocol.results import Provenance
from flowmesh_core.units import Digest

Bumps = Mapping[Digest, int]
"""Signature class → how often it was quarantined; classes that are not are left out."""


class QuarantineEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A signature class whose results were found not to repeat: ``quarantine/<class>``.

    Attributes:
        bump: rises with every quarantine of the class and never falls, so that nothing that was
            published before is found again.
        active: whether look-ups are kept from its older results; False once it was released.
        since_s: when it was quarantined last.
        audit: the audit that found it, of a step of ``run_uid``; ``action_id`` did not repeat.
        port: an output that differed, ``published`` and ``again`` its digests.
    """

    signature_class: Digest
    engine: str
    contract: int
    implementation: int
    fields: dict[str, Any]
    bump: int
    active: bool
    since_s: float
    audit: str
    run_uid: str
    step: str
    action_id: Digest
    port: str
    published: str
    again: str
    published_by: Provenance = Provenance()
    again_by: Provenance = Provenance()


def signature_class(
    contract: EngineContract,
    params: Mapping[str, Any],
    fields: Mapping[str, Any],
    inputs: Mapping[str, Digest],
) -> Digest:
    """The class of an action.

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


def salt_of(bumps: Bumps, found: Digest) -> str:
    """What enters the salt of an action of this class; empty where it is not quarantined."""
    bump = bumps.get(found, 0)
    return f"quarantine:{bump}" if bump else ""
