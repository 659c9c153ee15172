"""Metrics of the control plane itself: its loop, its store, its audits."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric

from flowmesh_api.v1.enums import Verdict
from flowmesh_control.auth.unverified_connections import UnverifiedConnections
from flowmesh_control.loop.event_loop import EventLoop
from flowmesh_control.loop.store_health import StoreHealth
from flowmesh_control.loop.task_pool import TaskPool
from flowmesh_control.metrics.collection_meter import KINDS, CollectionMeter
from flowmesh_control.metrics.families import counter, counters, gauge, gauges, histograms
from flowmesh_control.metrics.store_latency import StoreMeter
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_control.request_log.request_log import RequestLog


def leading(loop: EventLoop, epoch: int) -> Iterator[Metric]:
    """Yields the epoch and the metrics of the event loop."""
    yield gauge(
        "flowmesh_leader_epoch",
        "The epoch of the leader, which increases by one with each new leader.",
        epoch,
    )
    yield counter(
        "flowmesh_events_applied", "Events that the control plane has applied.", loop.applied
    )
    yield gauge("flowmesh_event_queue_length", "Events that wait to be applied.", loop.backlog)
    yield histograms(
        "flowmesh_scheduling_cycle_seconds",
        "Seconds that a scheduling cycle took.",
        [],
        {(): loop.ticks},
    )


def store(meter: StoreMeter, tasks: TaskPool, trouble: StoreHealth) -> Iterator[Metric]:
    """Yields latency, traffic and errors of the control plane's store operations."""
    yield histograms(
        "flowmesh_store_seconds",
        "Seconds that a store operation took, by operation and outcome.",
        ["operation", "outcome"],
        meter.latency,
    )
    yield counters(
        "flowmesh_store_bytes",
        "Bytes read or written, by store operation.",
        ["operation"],
        [([operation], count) for operation, count in meter.moved_bytes.items()],
    )
    yield counters(
        "flowmesh_store_records_refused",
        "Records that were read but not believed because of their seal, by reason.",
        ["reason"],
        [([reason], count) for reason, count in meter.refused.items()],
    )
    yield gauge(
        "flowmesh_store_task_queue_length", "Store tasks that have not started.", tasks.backlog
    )
    yield counter("flowmesh_store_retries", "Store tasks that were retried.", tasks.retries)
    yield gauge(
        "flowmesh_store_writes_failing",
        "1 while the store refuses writes, which are then retried; otherwise 0.",
        1.0 if trouble.text else 0.0,
    )


def audited(audits: AuditRecords) -> Iterator[Metric]:
    """Yields the verdicts of audits and the size of the quarantine."""
    yield counters(
        "flowmesh_audit_actions",
        "Audited actions, by verdict.",
        ["verdict"],
        [([verdict], audits.counts[verdict]) for verdict in Verdict],
    )
    yield gauge(
        "flowmesh_audit_quarantined",
        "Signature classes in quarantine.",
        len(audits.quarantine.salts()),
    )


def request_log(log: RequestLog) -> Iterator[Metric]:
    """Yields the entries of the request log."""
    yield counter(
        "flowmesh_request_log_entries", "Entries written to the request log.", log.written
    )
    yield counter(
        "flowmesh_request_log_lost",
        "Entries of the request log that were dropped because the store could not be written to for"
        " too long.",
        log.lost,
    )
    yield gauge(
        "flowmesh_request_log_pending",
        "Entries of the request log that wait to be written.",
        log.pending,
    )


def collections(meter: CollectionMeter) -> Iterator[Metric]:
    """Yields what collections of the store did, and what they left."""
    yield counters(
        "flowmesh_collections",
        "Garbage collections of the store that ended, by outcome.",
        ["outcome"],
        [([outcome], meter.ended[outcome]) for outcome in ("ok", "failed")],
    )
    yield counters(
        "flowmesh_collected",
        "What garbage collections deleted, by kind, such as blobs or runs.",
        ["kind"],
        [([kind], meter.deleted[kind]) for kind in KINDS],
    )
    yield counter(
        "flowmesh_collected_bytes", "Bytes of blobs that collections deleted.", meter.deleted_bytes
    )
    yield gauge(
        "flowmesh_collection_under_way",
        "1 while a collection of the store runs; otherwise 0.",
        float(meter.under_way),
    )
    yield gauge(
        "flowmesh_collection_last_timestamp_seconds",
        "Unix time of the last successful collection; 0 before the first.",
        meter.last_s,
    )
    yield gauge(
        "flowmesh_collection_seconds", "Seconds that the last collection took.", meter.took_s
    )
    yield gauge(
        "flowmesh_collection_unreadable_runs",
        "Runs whose records the last collection could not read; content that they may need is not"
        " deleted.",
        len(meter.unreadable_runs),
    )
    yield gauges(
        "flowmesh_stored_bytes",
        "Bytes of blobs after the last collection, by use: live, or unused but not deleted yet.",
        ["use"],
        [
            (["live"], meter.live_bytes),
            (["unused"], max(0, meter.stored_bytes - meter.live_bytes)),
        ],
    )


def refused_by_quotas(refusals: Mapping[str, int]) -> Iterator[Metric]:
    """Yields how often quotas have refused something."""
    yield counters(
        "flowmesh_quota_refusals",
        "Requests and runs that a quota refused, by limit.",
        ["limit"],
        [([limit], count) for limit, count in refusals.items()],
    )


def connections(open_now: UnverifiedConnections) -> Iterator[Metric]:
    """Yields the connections that have shown no valid token, and how many were refused."""
    yield gauge(
        "flowmesh_connections_unverified",
        "Open connections that have shown no valid token.",
        open_now.count,
    )
    yield counters(
        "flowmesh_connections_refused",
        "Connections that were closed at once because a limit was reached, by limit.",
        ["limit"],
        [([limit], count) for limit, count in open_now.refused.items()],
    )
