"""The record of a quarantined signature class; what it does to names is in ``identity``."""

from typing import Any

import msgspec

from flowmesh_core.protocol.results import Provenance
from flowmesh_core.units import Digest


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
