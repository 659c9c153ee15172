"""Makes what administers and collects the store, as ``epoch_parts`` makes the other parts."""

from functools import partial
from math import inf

from flowmesh_control.cache.admin import CacheAdmin
from flowmesh_control.cache.collection import StoreCollection
from flowmesh_control.cache.log_retention import LogRetention
from flowmesh_control.cache.result_uses import ResultUses
from flowmesh_control.cache.run_deletion import RunDeletion
from flowmesh_control.cache.run_retention import RunRetention
from flowmesh_control.epoch_context import EpochContext
from flowmesh_control.metrics.collection_meter import CollectionMeter
from flowmesh_control.openai.services import OpenAiServices
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.quotas.stored_bytes import StoredBytes
from flowmesh_control.records.epochs import check_leads
from flowmesh_control.serving.registry import ServiceRegistry


def build_deletion(
    context: EpochContext,
    cache: CacheAdmin,
    openai: OpenAiServices,
    views: RunViews,
    uses: ResultUses,
    meter: CollectionMeter,
) -> tuple[StoreCollection, RunDeletion]:
    """Returns what deletes what nothing needs any more, and what deletes runs for their users."""
    log, settings = context.request_log, context.settings
    retention = _run_retention(context, openai)
    deletion = RunDeletion(
        views=views,
        index=context.index,
        deleted=context.deleted,
        retention=retention,
        of_batches=openai.batches.uids,
        clock=context.clock,
    )
    collection = StoreCollection(
        settings=settings.collection,
        cache=cache,
        runs=retention,
        request_log=LogRetention(
            log.records,
            context.store.sweepable_records,
            log.signer,
            ttl_s=settings.request_log_ttl_s,
        ),
        uses=uses,
        meter=meter,
        leads=partial(check_leads, context.store.records, context.epoch),
        clock=context.clock,
    )
    return collection, deletion


def _run_retention(context: EpochContext, openai: OpenAiServices) -> RunRetention:
    """Returns what deletes the records of runs."""
    settings, state = context.settings, context.machine.state

    def lineage_ttl_s() -> float:
        ttls = [settings.machine.result_ttl_s, *_policy_ttls(context)]
        return max(ttls) if all(ttls) else inf

    async def needed() -> set[str]:
        return {*state.runs, *context.waiting, *await openai.batches.uids()}

    return RunRetention(
        context.store.sweepable_records,
        ttl_s=settings.collection.run_ttl_s,
        grace_s=settings.collection.grace_s,
        lineage_ttl_s=lineage_ttl_s,
        needed=needed,
        deleted=context.deleted,
        forget=context.archive.forget,
    )


def build_cache_admin(
    context: EpochContext,
    stored: StoredBytes,
    openai: OpenAiServices,
    registry: ServiceRegistry,
    uses: ResultUses,
) -> CacheAdmin:
    """Returns what counts, collects and purges results."""
    return CacheAdmin(
        store=context.store,
        state=context.machine.state,
        archive=context.archive,
        result_ttl_s=context.settings.machine.result_ttl_s,
        withheld=context.withheld,
        clock=context.clock,
        collected=stored.recount_all,
        uploaded=openai.stored_content,
        served=registry.models,
        grace_s=context.settings.collection.grace_s,
        uses=uses,
        shortest_ttl_s=lambda: min(filter(None, _policy_ttls(context)), default=inf),
    )


def _policy_ttls(context: EpochContext) -> list[float]:
    """Returns the lifetimes of results that cache policies give; 0 for ever."""
    return [p.ttl_s for p in context.policies.all() if p.ttl_s is not None]
