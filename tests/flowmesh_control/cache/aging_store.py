"""A store in memory whose clock a test sets."""

from dataclasses import dataclass

from tests.blob_views import SCOPE, blobs_of

from flowmesh_control.cache.admin import CacheAdmin
from flowmesh_control.cache.collection import StoreCollection
from flowmesh_control.cache.log_retention import LogRetention
from flowmesh_control.cache.result_uses import ResultUses
from flowmesh_control.cache.run_retention import RunRetention
from flowmesh_control.collection_settings import CollectionSettings
from flowmesh_control.metrics.collection_meter import CollectionMeter
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.deleted_runs import DeletedRuns
from flowmesh_control.records.withheld_records import WithheldRecords
from flowmesh_control.request_log.signatures import Signer
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.costmodel.model import CostModel
from flowmesh_core.machine.machine import Machine
from flowmesh_core.machine.settings import Settings
from flowmesh_core.protocol.results import ActionResult, Artifact
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.hashing import digest_of
from flowmesh_store.memory import MemoryContent, MemoryRecords
from flowmesh_store.store import Store, open_store

DAY_S = 86400.0
GRACE_S = 3600.0
RESULT_TTL_S = 30 * DAY_S


@dataclass
class AgingStore:
    """The store, and the time of its clock and of the control plane's."""

    store: Store
    now_s: float = 1000.0

    @classmethod
    def new(cls) -> "AgingStore":
        store = open_store("memory:")
        made = cls(store)
        content, records = store.sweepable_blobs, store.records
        assert isinstance(content, MemoryContent)
        assert isinstance(records, MemoryRecords)
        content.clock = records._clock = lambda: made.now_s
        return made

    def clock(self) -> float:
        return self.now_s

    def cache(self, uses: ResultUses | None = None) -> ActionCache:
        return ActionCache(
            self.store.records,
            ttl_s=RESULT_TTL_S,
            clock=self.clock,
            used=None if uses is None else uses.note,
        )

    async def put(self, data: bytes) -> Artifact:
        digest = digest_of(data)
        await blobs_of(self.store).put(digest, data)
        return Artifact("blob", digest, digest, len(data))

    async def publish(self, name: str, data: bytes, ttl_s: float = RESULT_TTL_S) -> Digest:
        """Publishes a result with one output; its action is named by the digest of the name."""
        action = digest_of(name.encode())
        outputs = {"o": await self.put(data)}
        expires_s = self.now_s + ttl_s
        result = ActionResult(action, 1, "test.noop", 1, 1, {}, outputs, expires_s=expires_s)
        await self.cache().publish(SCOPE, result)
        return action

    async def results(self) -> set[str]:
        return {key.rpartition("/")[2] async for key in self.store.records.keys("actions/")}

    async def blobs(self) -> set[str]:
        return {blob.digest async for blob in self.store.sweepable_blobs.blobs()}

    async def keys(self, prefix: str) -> list[str]:
        return [key async for key in self.store.records.keys(prefix)]

    def collection(
        self,
        settings: CollectionSettings,
        *,
        needed: frozenset[str] = frozenset(),
        archive: Archive | None = None,
        uses: ResultUses | None = None,
        meter: CollectionMeter | None = None,
        shortest_ttl_s: float = RESULT_TTL_S,
    ) -> StoreCollection:
        """Returns the collection of a leader without live runs."""
        store, records = self.store, self.store.records
        archive = archive or Archive(records)
        uses = uses or ResultUses(records, self.clock)
        machine = Machine(epoch=2, catalog=Catalog(()), settings=Settings(), model=CostModel())

        async def stay() -> frozenset[str]:
            return needed

        async def leads() -> None:
            return

        return StoreCollection(
            settings=settings,
            cache=CacheAdmin(
                store=store,
                state=machine.state,
                archive=archive,
                result_ttl_s=RESULT_TTL_S,
                withheld=WithheldRecords(store),
                clock=self.clock,
                collected=lambda: None,
                grace_s=settings.grace_s,
                uses=uses,
                shortest_ttl_s=lambda: shortest_ttl_s,
            ),
            runs=RunRetention(
                store.sweepable_records,
                ttl_s=settings.run_ttl_s,
                grace_s=settings.grace_s,
                lineage_ttl_s=lambda: RESULT_TTL_S,
                needed=stay,
                deleted=DeletedRuns(records),
                forget=archive.forget,
            ),
            request_log=LogRetention(
                records,
                store.sweepable_records,
                Signer(KeyRing.of(b"k" * 32)),
                ttl_s=400 * DAY_S,
            ),
            uses=uses,
            meter=meter or CollectionMeter(),
            leads=leads,
            clock=self.clock,
        )
