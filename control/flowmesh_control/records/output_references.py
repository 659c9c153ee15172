"""References to the outputs of ended runs, by which other workflows use them.

A run's end is stored with the references of that time. Readers get new ones, since a key may have
been removed or the scope's generation raised since.
"""

from collections.abc import Mapping

import msgspec

from flowmesh_api.v1.enums import Phase
from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_control.records.run_records import FinalRecord
from flowmesh_core.protocol.results import Artifact


def current_status(final: FinalRecord, issuer: ReferenceIssuer) -> RunStatus:
    """Returns the status of an ended run with references that are valid now."""
    if final.status.phase != Phase.SUCCEEDED:
        return final.status
    return with_references(final.status, final.outputs, issuer, final.scope)


def with_references(
    status: RunStatus,
    outputs: Mapping[str, tuple[Artifact, ...]],
    issuer: ReferenceIssuer,
    scope: str,
) -> RunStatus:
    """Returns a status with references to its outputs.

    Args:
        status: of a run that succeeded.
        outputs: its outputs by name.
        issuer: issues them.
        scope: the one that the run published to.
    """
    shown = dict(status.outputs)
    for name, artifacts in outputs.items():
        described = shown.get(name)
        if described is None or not artifacts:
            continue
        references = [issuer.issue(scope, a.kind, a.blob) for a in artifacts]
        if len(references) == 1:
            shown[name] = {**described, "reference": references[0]}
        else:
            parts = zip(described["parts"], references, strict=True)
            shown[name] = {**described, "parts": [{**p, "reference": r} for p, r in parts]}
    return msgspec.structs.replace(status, outputs=shown)
