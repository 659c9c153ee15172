"""Starts audits: draws actions of an ended run and submits a run that executes them again.

Called by the API. The records of audits are written by ``records/audit_records.py``.
"""

import asyncio
import secrets

import msgspec
import orjson

from flowmesh_api.v1.audit import AuditAccepted, AuditCheck, AuditOrder, AuditReport, AuditSkip
from flowmesh_api.v1.enums import ENDED_PHASES, Phase
from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.audit.reproducibility import ReproducibilityCheck
from flowmesh_control.errors import ConflictError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.records.audit_records import ORDER, AuditRecords
from flowmesh_control.records.run_pins import require_pins
from flowmesh_control.records.run_records import PinsRecord
from flowmesh_control.runs.admission import Admission, Compiled
from flowmesh_core.audit.plan import audit_path, audit_plan
from flowmesh_core.audit.provenance import provenance_of
from flowmesh_core.audit.reconstruct import ReproducibleAction, made_by
from flowmesh_core.audit.report import counts_of
from flowmesh_core.audit.sampling import choose
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import Determinism
from flowmesh_core.identity import digest_bytes
from flowmesh_core.machine.events import Submitted
from flowmesh_core.machine.run_lifecycle import run_of
from flowmesh_core.sharing.scopes import audit_scopes
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache, StoredResult
from flowmesh_store.blobs import BlobViews
from flowmesh_store.ports import RecordStore

REPEATS = frozenset({Determinism.EXACT, Determinism.SEEDED})
"""Classes that promise the same result for the same action."""
_AT_ONCE = 32
"""Records looked up together."""


class AuditSubmission:
    """Starts audits."""

    def __init__(
        self,
        *,
        records: RecordStore,
        store: BlobViews,
        cache: ActionCache,
        catalog: Catalog,
        views: RunViews,
        admission: Admission,
        audits: AuditRecords,
        clock: Clock,
    ) -> None:
        self._records = records
        self._store = store
        self._cache = cache
        self._catalog = catalog
        self._views = views
        self._admission = admission
        self._audits = audits
        self._clock = clock

    async def begin(self, uid: str, *, share: float, seed: int) -> AuditAccepted:
        """Starts an audit, or resumes an unfinished one of the same run, share and seed.

        Args:
            uid: of a run that has ended.
            share: of its actions of class ``exact`` and ``seeded``, in (0, 1].
            seed: of the draw.

        Raises:
            NotFoundError: there is no such run.
            ConflictError: it has not ended, or is an audit itself.
            StoreError: nothing was started.
        """
        status = await self._auditable_status(uid)
        digest = digest_bytes(orjson.dumps(["audit", uid, share, seed]))
        active = await self._admission.active_run(digest)
        if active:
            order = await self._audits.order(active)
            return AuditAccepted(active, resumed=True, checks=len(order.checks))
        pins = await require_pins(self._records, uid)
        made = await self._actions(status, pins)
        eligible = [m for m in made if m.determinism in REPEATS]
        chosen = choose(eligible, share, seed)
        checks, unchecked = await self._checks(pins, chosen, made)
        order = AuditOrder(
            run_uid=uid,
            run=status.name,
            namespace=status.namespace,
            share=share,
            seed=seed,
            created_s=self._clock(),
            eligible=len({m.action_id for m in eligible}),
            checks=tuple(c for _, c in checks),
            unchecked=unchecked,
            passed_over=_not_eligible(made),
        )
        if not checks:
            counts = counts_of(order, ())
            report = AuditReport("", order, Phase.SUCCEEDED, counts=counts, ended_s=self._clock())
            return AuditAccepted("", resumed=False, checks=0, report=report)
        return await self._submit(pins, order, [m for m, _ in checks], digest)

    async def _submit(
        self, pins: PinsRecord, order: AuditOrder, chosen: list[ReproducibleAction], digest: Digest
    ) -> AuditAccepted:
        plan, artifacts = audit_plan(order.run_uid, pins.plan, chosen)
        uid = f"{plan.name}-{secrets.token_hex(4)}"
        document = {"kind": "FlowMeshAudit", ORDER: msgspec.to_builtins(order)}
        min_trust = max(pins.scopes.min_trust, pins.plan.min_trust)
        scopes = audit_scopes(uid, pins.scopes, min_trust)
        compiled = Compiled(document, plan, scopes, artifacts, {})
        accepted = await self._admission.accept_plan(compiled, digest, uid=uid)
        return AuditAccepted(accepted.uid, accepted.resumed, len(order.checks))

    async def _auditable_status(self, uid: str) -> RunStatus:
        status = await self._views.status(uid)
        if status.audit_of:
            raise ConflictError(
                f"{uid} is an audit itself", where="audit", remedy=f"audit {status.audit_of}"
            )
        if status.phase not in ENDED_PHASES:
            raise ConflictError(
                f"run {uid} has not ended: {status.phase}",
                where="audit",
                remedy=f"`fmesh watch {uid}` follows it",
            )
        return status

    async def _actions(self, status: RunStatus, pins: PinsRecord) -> list[ReproducibleAction]:
        """Returns the run's actions under their original keys."""
        unknown = [s.engine for s in pins.plan.steps if self._catalog.newest(s.engine) is None]
        if unknown:
            raise ConflictError(
                f"engine {unknown[0]} is not installed",
                where="audit",
                remedy="install the engines that the run used",
            )
        event = Submitted(
            status.uid,
            pins.plan,
            status.created_s,
            pins.scopes,
            pins.artifacts,
            quarantine_salts=pins.quarantine_salts,
        )
        lines = await self._views.lines(status.uid)
        return await asyncio.to_thread(lambda: list(made_by(run_of(self._catalog, event), lines)))

    async def _checks(
        self, pins: PinsRecord, chosen: list[ReproducibleAction], made: list[ReproducibleAction]
    ) -> tuple[list[tuple[ReproducibleAction, AuditCheck]], tuple[AuditSkip, ...]]:
        checkable = ReproducibilityCheck(self._store, self._cache, pins.scopes, made)
        limit = asyncio.Semaphore(_AT_ONCE)

        async def check(one: ReproducibleAction) -> StoredResult | str:
            async with limit:
                found = await checkable.record_of(one)
                reason = "" if isinstance(found, str) else await checkable.lacks(one)
                return reason or found

        checks, unchecked = [], []
        for one, found in zip(chosen, await asyncio.gather(*map(check, chosen)), strict=True):
            if isinstance(found, str):
                skip = AuditSkip(one.step.path, one.chunk, one.action_id, one.step.engine, found)
                unchecked.append(skip)
            else:
                bump = pins.quarantine_salts.get(one.signature_class, 0)
                checks.append((one, check_of(one, found, bump)))
        return checks, tuple(unchecked)


def check_of(made: ReproducibleAction, found: StoredResult, bump: int) -> AuditCheck:
    """Returns what an audit compares an action's repetition with."""
    result = found.result
    return AuditCheck(
        path=audit_path(made),
        step=made.step.path,
        chunk=made.chunk,
        action_id=made.action_id,
        scope=found.scope,
        engine=made.step.engine,
        contract=made.step.contract,
        implementation=made.step.implementation,
        determinism=made.determinism,
        signature_class=made.signature_class,
        fields=made.step.fields,
        outputs={port: a.digest for port, a in result.outputs.items()},
        published_by=provenance_of(result.provenance),
        published_s=result.created_s,
        bump=bump,
    )


def _not_eligible(made: list[ReproducibleAction]) -> dict[str, int]:
    found: dict[str, set[Digest]] = {}
    for m in made:
        if m.determinism not in REPEATS:
            found.setdefault(m.determinism.value, set()).add(m.action_id)
    return {name: len(ids) for name, ids in sorted(found.items())}
