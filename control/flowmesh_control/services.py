"""The services that the leading control plane offers to its API and to the operator.

Neither sees the machine or its state; each passes to its classes only the services that they need.
"""

from dataclasses import dataclass

from flowmesh_control.audit.submission import AuditSubmission
from flowmesh_control.auth.unverified_connections import UnverifiedConnections
from flowmesh_control.autoscaling.capacity_signal import CapacitySignalSource
from flowmesh_control.autoscaling.worker_fleet import ConnectedFleet
from flowmesh_control.cache.admin import CacheAdmin
from flowmesh_control.cache.collection import StoreCollection
from flowmesh_control.cache.run_deletion import RunDeletion
from flowmesh_control.loop.epoch import CurrentEpoch
from flowmesh_control.metrics.exposition import MetricsPage
from flowmesh_control.openai.services import OpenAiServices
from flowmesh_control.queries.change_feed import RunChangeFeed
from flowmesh_control.queries.fleet import FleetQueries
from flowmesh_control.queries.live_runs import LiveRuns
from flowmesh_control.queries.planner import Planner
from flowmesh_control.queries.run_queries import RunQueries
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.queries.status_document import StatusDocuments
from flowmesh_control.queries.step_outputs import StepOutputs
from flowmesh_control.quotas.namespace_usage import NamespaceUsage
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_control.quotas.rates import Rates
from flowmesh_control.quotas.run_quota import RunQuota
from flowmesh_control.quotas.stored_bytes import StoredBytes
from flowmesh_control.quotas.uploaded_bytes import UploadedBytes
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.deleted_runs import DeletedRuns
from flowmesh_control.records.key_admin import KeyAdmin
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.service_charges import ServiceChargeRecords
from flowmesh_control.request_log.reading import RequestLogReader
from flowmesh_control.request_log.request_log import RequestLog
from flowmesh_control.revocation.service import RevocationService
from flowmesh_control.runs.admission import Admission
from flowmesh_control.runs.commands import RunCommands
from flowmesh_control.runs.repin import RepinService
from flowmesh_control.runs.resume import RunResumption
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_control.serving.registry import ServiceRegistry
from flowmesh_control.serving.replica_planner import ReplicaPlanner
from flowmesh_control.serving.service_tokens import ServiceTokens
from flowmesh_control.settings import ControlSettings
from flowmesh_control.verification.verification import OutputVerification
from flowmesh_control.withholding.withholding import Withholding
from flowmesh_control.workers.gateway import WorkerGateway
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import StoreError
from flowmesh_store.store import Store


@dataclass(frozen=True, slots=True)
class ControlPlaneServices:
    """The ports and services of one epoch.

    Attributes:
        refusal: why the store is read-only; None where it can be written.
    """

    epoch: CurrentEpoch
    settings: ControlSettings
    catalog: Catalog
    store: Store
    runs: LiveRuns
    commands: RunCommands
    deletion: RunDeletion
    deleted: DeletedRuns
    changes: RunChangeFeed
    views: RunViews
    queries: RunQueries
    step_outputs: StepOutputs
    admission: Admission
    repinning: RepinService
    resumption: RunResumption
    planner: Planner
    fleet: ConnectedFleet
    fleet_queries: FleetQueries
    gateway: WorkerGateway
    signals: CapacitySignalSource
    uploads: UploadStore
    lineage: LineageIndex
    documents: StatusDocuments
    policies: CachePolicyStore
    quotas: Quotas
    run_quota: RunQuota
    stored: StoredBytes
    uploaded: UploadedBytes
    usage: NamespaceUsage
    rates: Rates
    audits: AuditRecords
    auditing: AuditSubmission
    cache: CacheAdmin
    collection: StoreCollection
    withholding: Withholding
    verification: OutputVerification
    revocation: RevocationService
    keys: KeyAdmin
    request_log: RequestLog
    log_reader: RequestLogReader
    openai: OpenAiServices
    metrics: MetricsPage
    service_charges: ServiceChargeRecords
    registry: ServiceRegistry
    replica_planner: ReplicaPlanner
    service_tokens: ServiceTokens
    connections: UnverifiedConnections
    refusal: StoreError | None = None
