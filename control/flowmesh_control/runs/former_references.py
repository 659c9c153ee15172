"""Converts references in stored runs from the form of an older release to today's.

References of that release do not state a kind, and admission refuses them. The references of a
stored run are safe to convert: its inputs were checked when it was accepted, and its outputs are
described by its artifacts.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flowmesh_control.records.run_pins import accepted_pins
from flowmesh_control.records.run_records import FinalRecord, SpecRecord
from flowmesh_control.runs.finalizer import with_references
from flowmesh_core.sharing import former_digest, namespace_scope
from flowmesh_core.units import Digest
from flowmesh_store.ports import RecordStore

_KINDS = ("dataset", "model", "adapter")
Issue = Callable[[str, str, Digest], str]
"""Makes a reference for a scope, a kind and a digest."""


def renewed_spec(spec: SpecRecord, issued: Issue) -> SpecRecord:
    """Returns a spec with today's references; the same object where nothing changes.

    Args:
        spec: of a run that was accepted, so its references were valid.
        issued: makes a reference.
    """
    inputs = spec.document.get("spec", {}).get("inputs")
    if not isinstance(inputs, dict):
        return spec

    def renewed(kind: str, reference: Any) -> Any:
        digest = former_digest(reference) if isinstance(reference, str) else None
        if digest is None:
            return reference
        return issued(namespace_scope(spec.namespace), kind, digest)

    uploads = {n: renewed(_kind_of(inputs.get(n)), r) for n, r in spec.uploads.items()}
    named = {n: _renewed_input(i, renewed) for n, i in inputs.items()}
    if uploads == spec.uploads and named == inputs:
        return spec
    document = {**spec.document, "spec": {**spec.document["spec"], "inputs": named}}
    return SpecRecord(
        uid=spec.uid,
        name=spec.name,
        namespace=spec.namespace,
        digest=spec.digest,
        created_s=spec.created_s,
        document=document,
        uploads=uploads,
    )


async def renewed_final(final: FinalRecord, records: RecordStore, master_key: bytes) -> FinalRecord:
    """Returns a run's end with today's references to its outputs; unchanged where it has these.

    Raises:
        StoreUnavailableError: the scope that the run published to could not be read.
    """
    outputs = [o for o in final.status.outputs.values() if o is not None]
    shown = [o.get("reference") for o in outputs]
    shown += [part.get("reference") for o in outputs for part in o.get("parts", ())]
    if not any(isinstance(r, str) and former_digest(r) for r in shown):
        return final
    pins = await accepted_pins(records, final.status.uid)
    scope = namespace_scope(final.status.namespace) if pins is None else pins.scopes.publish
    status = with_references(final.status, final.outputs, master_key, scope)
    return FinalRecord(final.epoch, status, final.outputs)


def _kind_of(source: Any) -> str:
    """Returns the kind of an input; rows and ConfigMaps are data sets."""
    given = source if isinstance(source, Mapping) else {}
    return next((k for k in _KINDS if k in given), "dataset")


def _renewed_input(source: Any, renewed: Callable[[str, Any], Any]) -> Any:
    if not isinstance(source, Mapping):
        return source
    return {k: renewed(k, v) if k in _KINDS else v for k, v in source.items()}
