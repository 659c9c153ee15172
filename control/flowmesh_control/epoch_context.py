"""What a control plane that begins to lead, or to read, has at its start."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.auth.worker_tokens import WorkerTokenVerifier
from flowmesh_control.loop.clock import Clock
from flowmesh_control.loop.current_event import CurrentEventMarker
from flowmesh_control.metrics.store_latency import StoreMeter
from flowmesh_control.observability.otlp import OtlpExporter
from flowmesh_control.ports import SecretReader
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.deleted_runs import DeletedRuns
from flowmesh_control.records.ended_index import EndedRunIndex
from flowmesh_control.records.key_admin import KeyAdmin
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_control.records.revocations import Revocations
from flowmesh_control.records.service_records import ServiceRecords
from flowmesh_control.records.withheld_records import WithheldRecords
from flowmesh_control.request_log.services import RequestLogServices
from flowmesh_control.settings import ControlSettings
from flowmesh_control.workers.gateway import PoolTrust
from flowmesh_core.accounting.daily_totals import Hours
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import StoreError
from flowmesh_core.machine.machine import Machine
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochContext:
    """What the objects of an epoch are made from.

    Attributes:
        epoch: its number.
        store: of the control plane, as are the settings and the ports below.
        store_meter: measures the store.
        tracing: where spans go; None where tracing is off.
        settings: of the control plane.
        catalog: the engine contracts.
        key_ring: signs attempt ids, and draws samples.
        references: issues and verifies references to content.
        keys: administers the keys of the records.
        request_log: gathers, reads and deletes entries of the request log.
        tokens: verifies the tokens that workers join with.
        secrets: reads secrets for attempts.
        clock: Unix time in seconds.
        machine: recovered.
        marker: says which event is being applied.
        refused_workers: names of workers that may not join.
        trust_of: returns the trust of a pool.
        ledger: of the runs under way.
        archive: of the runs that have ended.
        index: of ended runs, the latest ones.
        deleted: listed.
        policies: loaded.
        services: loaded.
        audits: loaded.
        withheld: loaded.
        revocations: loaded.
        waiting: runs that cannot continue with the versions that they are pinned to.
        uploaded: what namespaces uploaded in the last day, by hour.
        failed: called with an error that ends this control plane.
        later_epoch_seen: called when a worker has seen a later leader.
        refusal: why the store is read-only; None where it can be written.
    """

    epoch: int
    store: Store
    store_meter: StoreMeter
    tracing: OtlpExporter | None
    settings: ControlSettings
    catalog: Catalog
    key_ring: KeyRing
    references: ReferenceIssuer
    keys: KeyAdmin
    request_log: RequestLogServices
    tokens: WorkerTokenVerifier
    secrets: SecretReader
    clock: Clock
    machine: Machine
    marker: CurrentEventMarker
    refused_workers: Set[str]
    trust_of: PoolTrust
    ledger: LedgerWriter
    archive: Archive
    index: EndedRunIndex
    deleted: DeletedRuns
    policies: CachePolicyStore
    services: ServiceRecords
    audits: AuditRecords
    withheld: WithheldRecords
    revocations: Revocations
    waiting: dict[str, RunStatus]
    uploaded: Mapping[str, Hours]
    failed: Callable[[BaseException], None]
    later_epoch_seen: Callable[[int], None]
    refusal: StoreError | None = None
