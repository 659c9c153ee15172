"""Removes revoked content from the records of runs that used or made it.

Their verdicts, times, money and lineage stay. Values of metrics, rows that the document has, lines
that steps printed and messages of failures go; an output is shown as revoked.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from flowmesh_api.v1.why import AttemptLine
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.keys import (
    final_key,
    ledger_prefix,
    logs_key,
    parse_segment,
    spec_key,
)
from flowmesh_control.records.known_keys import known_keys
from flowmesh_control.records.overwrite import overwrite
from flowmesh_control.records.run_logs import RunLogRecord, log_decoder
from flowmesh_control.records.run_pins import pins_in
from flowmesh_control.records.run_records import (
    AcceptedRecord,
    FinalRecord,
    PinsRecord,
    accepted_decoder,
    decode_record,
    final_decoder,
    spec_decoder,
)
from flowmesh_core.accounting.ledger_lines import (
    CheckpointLine,
    Line,
    StepLine,
    VerdictLine,
    decode_lines,
    encode_lines,
)
from flowmesh_core.errors import FailureKind
from flowmesh_core.machine import checkpoints
from flowmesh_core.machine.events import ContentRevoked
from flowmesh_core.machine.revoked_steps import revoked_steps
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing import read_reference
from flowmesh_core.units import Digest
from flowmesh_documents.parameters import named_parameters
from flowmesh_store.ports import RecordStore

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class ConcernedRun:
    """A run and what a revocation concerns of it.

    Attributes:
        spec: as it was accepted.
        revoked: identities.
        steps: paths of the steps that used or made any of it.
        content: the artifacts and checkpoints, each with the scopes where it may lie.
    """

    spec: AcceptedRecord
    revoked: frozenset[Digest]
    steps: tuple[str, ...]
    content: tuple[tuple[tuple[str, ...], Artifact], ...]


class RunRedaction:
    """Reads and redacts the records of runs."""

    def __init__(
        self, records: RecordStore, archive: Archive, changed: Callable[[str], None]
    ) -> None:
        """Keeps the arguments.

        Args:
            records: of the store.
            archive: has the ends of runs in memory too.
            changed: called with the uid of a run whose status is another now.
        """
        self._records = records
        self._archive = archive
        self._changed = changed

    async def concerned(
        self, uid: str, event: ContentRevoked, *, is_known: bool = True
    ) -> ConcernedRun | None:
        """Returns what a revocation concerns of a run; None where that is nothing.

        Args:
            uid: of the run.
            event: the revocation.
            is_known: whether to read its ledger although its inputs are not concerned.

        Raises:
            DamagedRecordError, NewerPlanError: a record of it cannot be read.
        """
        key = spec_key(uid)
        record = await self._records.read(key)
        if record is None:
            return None
        head = decode_record(spec_decoder, key, record)
        if event.namespace not in ("", head.namespace) or head.created_s > event.revoked_s:
            return None
        pins = pins_in(uid, record)
        if pins is None:
            return None
        given = {artifact.digest for artifact in pins.artifacts.values()}
        if not is_known and event.identities.isdisjoint(given):
            return None
        spec = decode_record(accepted_decoder, key, record)
        lines = [line async for _, lines in self._segments(uid) for line in lines]
        ends = {line.step: line.outputs for line in lines if isinstance(line, StepLine)}
        steps = tuple(revoked_steps(pins.plan, pins.artifacts, ends, event.identities))
        content = tuple(_content(pins, lines, steps, event.identities))
        if not steps and not content:
            return None
        return ConcernedRun(spec, event.identities, steps, content)

    async def redact(self, run: ConcernedRun) -> bool:
        """Removes the content from the run's records; returns whether lines of steps were removed.

        Raises:
            StoreError: try again; what is removed stays removed.
        """
        uid, steps = run.spec.uid, frozenset(run.steps)
        await self._redact(spec_key(uid), run.spec, _spec(run.spec, run.revoked))
        async for key, lines in self._segments(uid):
            redacted = [_line(line, steps, run.revoked) for line in lines]
            if redacted != lines:
                await overwrite(self._records, key, encode_lines(redacted))
        has_logs = await self._redact_logs(uid, steps)
        key = final_key(uid)
        record = await self._records.read(key)
        if record is not None:
            final = decode_record(final_decoder, key, record)
            shown = redacted_final(final, steps, run.revoked)
            await self._redact(key, final, shown)
            if uid in self._archive:
                self._archive.add(shown)
            self._changed(uid)
        return has_logs

    async def redact_end(self, final: FinalRecord, events: Iterable[ContentRevoked]) -> FinalRecord:
        """Redacts the records of a run that ends now; returns its end without the content.

        Raises:
            StoreError: try again.
        """
        for event in events:
            run = await self.concerned(final.status.uid, event)
            if run is not None:
                await self.redact(run)
                final = redacted_final(final, frozenset(run.steps), run.revoked)
        return final

    async def _redact(self, key: str, before: _Record, after: _Record) -> None:
        if before != after:
            await overwrite(self._records, key, msgspec.json.encode(after))

    async def _redact_logs(self, uid: str, steps: AbstractSet[str]) -> bool:
        key = logs_key(uid)
        record = await self._records.read(key)
        if record is None:
            return False
        logs = decode_record(log_decoder, key, record)
        left = {path: lines for path, lines in logs.steps.items() if path not in steps}
        await self._redact(key, logs, RunLogRecord(left))
        return left != logs.steps

    async def _segments(self, uid: str) -> AsyncIterator[tuple[str, list[Line]]]:
        """Yields the segments of a run's ledger, without the openings."""
        found = known_keys(self._records, ledger_prefix(uid), parse_segment)
        for key, (_, number) in [pair async for pair in found]:
            record = await self._records.read(key)
            if number and record is not None and not record.damage:
                yield key, decode_lines(record.data)


def redacted_final(
    final: FinalRecord, steps: AbstractSet[str], revoked: AbstractSet[Digest]
) -> FinalRecord:
    """Returns a run's end without the content.

    Args:
        final: the end.
        steps: the paths of the steps that used or made it.
        revoked: identities.
    """
    names = [n for n, found in final.outputs.items() if any(a.digest in revoked for a in found)]
    status, shown = final.status, dict(final.status.outputs)
    for name in names:
        shown[name] = _revoked_output(shown.get(name) or {})
    of_step = status.failed_step in steps
    quotes = of_step and status.reason != FailureKind.REVOKED
    status = msgspec.structs.replace(
        status,
        outputs=shown,
        log=() if of_step else status.log,
        message="" if quotes else status.message,
        steps=tuple(
            msgspec.structs.replace(s, message="")
            if s.path in steps and s.reason != FailureKind.REVOKED
            else s
            for s in status.steps
        ),
    )
    outputs = {**final.outputs, **dict.fromkeys(names, ())}
    return msgspec.structs.replace(final, status=status, outputs=outputs, partial={})


def _revoked_output(described: Mapping[str, Any]) -> dict[str, Any]:
    parts = described.get("parts")
    if parts is not None:
        kept = [_revoked_output(part) for part in parts]
        return {"parts": kept, "kind": described["kind"], "revoked": True}
    return {k: described[k] for k in ("kind", "digest") if k in described} | {"revoked": True}


def _content(
    pins: PinsRecord,
    lines: Iterable[Line],
    steps: Sequence[str],
    revoked: AbstractSet[Digest],
) -> Iterable[tuple[tuple[str, ...], Artifact]]:
    scopes = tuple(dict.fromkeys((*pins.scopes.readable, pins.scopes.publish, pins.scopes.private)))
    for artifact in pins.artifacts.values():
        if artifact.digest in revoked:
            yield scopes, artifact
    for line in lines:
        if isinstance(line, StepLine):
            for made in line.outputs.values():
                if made is not None and made.digest in revoked:
                    yield scopes, made
        elif isinstance(line, CheckpointLine) and line.step in steps:
            kept = Artifact(checkpoints.KIND, line.digest, line.digest, line.size_bytes)
            yield (line.scope,), kept


def _spec(spec: AcceptedRecord, revoked: AbstractSet[Digest]) -> AcceptedRecord:
    """Returns a spec without the values of metrics, the document's rows and their parameters."""
    pins = spec.pins
    if pins is None:
        return spec
    blobs = {a.blob for a in pins.artifacts.values() if a.digest in revoked}
    artifacts = {
        reference: _artifact(artifact, revoked) for reference, artifact in pins.artifacts.items()
    }
    body = spec.document.get("spec", {})
    inputs = body.get("inputs") or {}
    inline = [n for n, r in spec.uploads.items() if read_reference(r).blob in blobs]
    of_rows = {n: inputs[n]["rows"] for n in inline if "rows" in inputs.get(n, {})}
    params = named_parameters(of_rows)
    plan = pins.plan
    if params:
        plan = msgspec.structs.replace(plan, params=_without(plan.params, params))
        body = {**body, "params": _without(body.get("params") or {}, params)}
    if of_rows:
        body = {**body, "inputs": {**inputs, **{n: {**inputs[n], "rows": []} for n in of_rows}}}
    return msgspec.structs.replace(
        spec,
        document={**spec.document, "spec": body} if of_rows else spec.document,
        pins=msgspec.structs.replace(pins, plan=plan, artifacts=artifacts),
    )


def _without(params: Mapping[str, Any], names: AbstractSet[str]) -> dict[str, Any]:
    """Returns parameters without the values of some, which were in rows."""
    return {name: None if name in names else value for name, value in params.items()}


def _artifact(artifact: Artifact, revoked: AbstractSet[Digest]) -> Artifact:
    if artifact.value is None or artifact.digest not in revoked:
        return artifact
    return msgspec.structs.replace(artifact, value=None)


def _line(line: Line, steps: AbstractSet[str], revoked: AbstractSet[Digest]) -> Line:
    """Returns a line without values and, of a concerned step, without its message."""
    if isinstance(line, StepLine):
        outputs = {p: a if a is None else _artifact(a, revoked) for p, a in line.outputs.items()}
        line = msgspec.structs.replace(line, outputs=outputs)
    if isinstance(line, StepLine | AttemptLine | VerdictLine) and line.step in steps:
        reason = line.outcome if isinstance(line, AttemptLine) else line.reason
        if line.message and reason != FailureKind.REVOKED:
            line = msgspec.structs.replace(line, message="")
    return line
