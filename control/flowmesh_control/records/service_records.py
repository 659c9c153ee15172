"""Services as records: they survive a restart of the leader."""

from typing import Any

import msgspec

from flowmesh_control.records.keys import SERVICES, service_key
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.graph.component_plan import ComponentPlan
from flowmesh_core.graph.service_plan import ServicePlan
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_core.stages.expected_arrivals import ExpectedArrivals
from flowmesh_store.ports import RecordStore

_REMEDY = "restore the object from a copy of the store; or delete it, and apply the service again"


class PendingRelease(msgspec.Struct, frozen=True):
    """A release whose models are being imported.

    Attributes:
        uid: of the run that imports them; empty where all are stored already.
        artifacts: models that are stored already, by reference.
        entry: what routers will know of the service; see ``ServiceRelease``.
    """

    plan: ServicePlan
    uid: str
    scopes: ScopePlan
    artifacts: dict[str, Artifact]
    entry: ServiceEntry | None = None


class ReleasedComponent(msgspec.Struct, frozen=True):
    """A component with its models, by port."""

    plan: ComponentPlan
    models: dict[str, Artifact]


class ServiceRelease(msgspec.Struct, frozen=True):
    """A set of digests that replicas load.

    Attributes:
        read_scopes: where the models may lie.
        min_trust: the least trust of the pools that may hold replicas.
        entry: its stages and limits as routers know them, without tokens and placement; None in
            records of releases without stages.
        arrivals: the requests that the service expects; None for none.
    """

    name: str
    components: tuple[ReleasedComponent, ...]
    read_scopes: tuple[str, ...]
    min_trust: int = 0
    entry: ServiceEntry | None = None
    arrivals: ExpectedArrivals | None = None


class StoredToken(msgspec.Struct, frozen=True):
    """A token that may call a service.

    Attributes:
        id: names it; ``hash`` is its SHA-256, in hexadecimal.
        created_s: Unix time.
        expires_s: Unix time; 0 for never.
    """

    id: str
    hash: str
    created_s: float
    expires_s: float = 0.0

    def has_expired(self, now_s: float) -> bool:
        """Returns whether it may not be used any more."""
        return 0 < self.expires_s <= now_s


class ServiceRecord(msgspec.Struct, frozen=True):
    """``services/<namespace>/<name>``; null for a deleted service.

    Attributes:
        model: its name in OpenAI's API.
        generation: raised when its content changes.
        pending: the release to come; ``release`` serves until it is there.
        failure: why the models of the last generation could not be imported; else empty.
        tokens: those that may call it, the oldest first.
        uid: of the service's object in a cluster; empty where it has none.
        runs: by input, the run whose output the service uses.
        uploads: references to stored content that the application gave, by input.
        labels: of the namespace, when the service was applied.
        paid_before_nanousd: what earlier services of its name had cost when it was created.
    """

    namespace: str
    name: str
    document: dict[str, Any]
    model: str
    created_s: float
    generation: int = 1
    pending: PendingRelease | None = None
    release: ServiceRelease | None = None
    failure: str = ""
    tokens: tuple[StoredToken, ...] = ()
    uid: str = ""
    runs: dict[str, str] = {}
    uploads: dict[str, str] = {}
    labels: dict[str, str] = {}
    paid_before_nanousd: int = 0

    @property
    def id(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def entry(self) -> ServiceEntry:
        """What routers know of it, without tokens and placement: of the release that serves."""
        current = self.release or self.pending
        known = current.entry if current is not None else None
        return known or ServiceEntry(self.id, self.model)


_decoder = msgspec.json.Decoder(ServiceRecord | None)


class ServiceRecords:
    """All services, in memory and under ``services/``."""

    def __init__(self, records: RecordStore) -> None:
        """Starts empty; :meth:`load` reads the stored services."""
        self._records = records
        self._services: dict[str, ServiceRecord] = {}

    async def load(self) -> None:
        """Reads every service; one without a valid seal is none.

        Raises:
            DamagedRecordError: one cannot be read.
        """
        async for key in self._records.keys(SERVICES):
            record = await self._records.read(key)
            if record is None or record.is_foreign:
                continue
            service = decode_record(_decoder, key, record, remedy=_REMEDY)
            if service is not None:
                self._services[service.id] = service

    def all(self) -> list[ServiceRecord]:
        """Returns the services, the oldest first."""
        return sorted(self._services.values(), key=lambda s: (s.created_s, s.id))

    def get(self, namespace: str, name: str) -> ServiceRecord | None:
        """Returns a service; None where there is none of that name."""
        return self._services.get(f"{namespace}/{name}")

    async def put(self, service: ServiceRecord) -> None:
        """Writes a service.

        Raises:
            ConditionFailedError: it was changed concurrently.
        """
        await self._write(service.namespace, service.name, service)
        self._services[service.id] = service

    async def remove(self, service: ServiceRecord) -> None:
        """Writes that a service is deleted.

        Raises:
            ConditionFailedError: it was changed concurrently.
        """
        await self._write(service.namespace, service.name, None)
        self._services.pop(service.id, None)

    async def _write(self, namespace: str, name: str, service: ServiceRecord | None) -> None:
        key = service_key(namespace, name)
        record = await self._records.read(key)
        etag = None if record is None else record.etag
        await self._records.write(key, msgspec.json.encode(service), if_match=etag)
