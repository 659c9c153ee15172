"""The fabric dashboard: queue, latency, hits, batches, workers, energy, failures."""

from hack.dashboards.panel import Board, Kind, Panel, Query

_POOL = '{pool=~"$pool"}'
_WINDOW = "[$__rate_interval]"


def _rate(metric: str, label: str, more: str = "") -> str:
    chosen = f"{{{more}}}" if more else ""
    return f"sum by ({label}) (rate({metric}{chosen}{_WINDOW}))"


def _quantile(q: float, metric: str, label: str) -> str:
    by = f"le, {label}" if label else "le"
    return f"histogram_quantile({q}, sum by ({by}) (rate({metric}_bucket{_WINDOW})))"


def _quantiles(metric: str, label: str) -> tuple[Query, ...]:
    return (
        Query(_quantile(0.5, metric, label), f"{{{{{label}}}}} median"),
        Query(_quantile(0.95, metric, label), f"{{{{{label}}}}} p95"),
    )


_LOAD = _rate("flowmesh_load_seconds_total", "pool")
_RUN = _rate("flowmesh_run_seconds_total", "pool")
_BUSY = _rate("flowmesh_worker_seconds_total", "pool", 'state="busy"')
_ALL = _rate("flowmesh_worker_seconds_total", "pool")
_NO_RESULT = 'outcome!~"published|adopted|audited"'
_HIT_RATE = "sum(rate(flowmesh_action_cache_hits_total[$__rate_interval]))"
_RUN_RATE = "sum(rate(flowmesh_actions_executed_total[$__rate_interval]))"

_NOW = (
    Panel(
        "Live runs",
        (Query("sum(flowmesh_runs_live)"),),
        "short",
        "Runs that have not ended.",
        Kind.NUMBER,
    ),
    Panel(
        "Waiting actions",
        (Query("sum(flowmesh_actions_ready)"),),
        "short",
        "Ready, and not assigned to a worker.",
        Kind.NUMBER,
    ),
    Panel(
        "Running attempts",
        (Query("sum(flowmesh_actions_running)"),),
        "short",
        "Assigned to workers.",
        Kind.NUMBER,
    ),
    Panel("Workers", (Query("sum(flowmesh_workers)"),), "short", "Connected.", Kind.NUMBER),
    Panel(
        "Hit share",
        (
            Query(
                "sum(flowmesh_action_cache_hits_total) / (sum(flowmesh_action_cache_hits_total)"
                " + sum(flowmesh_actions_executed_total))"
            ),
        ),
        "percentunit",
        "The share of requested actions whose results were reused.",
        Kind.NUMBER,
    ),
    Panel(
        "Leader's epoch",
        (Query("max(flowmesh_leader_epoch)"),),
        "short",
        "Increases by one with every takeover or restart.",
        Kind.NUMBER,
    ),
)

_QUEUE = (
    Panel(
        "Queue depth",
        (
            Query("sum(flowmesh_actions_ready)", "waiting"),
            Query(f"sum by (pool) (flowmesh_actions_running{_POOL})", "running {{pool}}"),
            Query(f"sum by (pool) (flowmesh_backlog_actions{_POOL})", "waiting for {{pool}}"),
        ),
        "short",
        "If actions wait and none runs, see the causes in the next panel.",
    ),
    Panel(
        "Why actions wait",
        (Query("sum by (cause) (flowmesh_actions_rejected)", "{{cause}}"),),
        "short",
        "The scheduler's reasons at its last decision; `busy` is the only harmless one.",
        Kind.STACKED,
    ),
    Panel(
        "Backlog by pool",
        (Query(f"sum by (pool) (flowmesh_backlog_seconds{_POOL})", "{{pool}}"),),
        "s",
        "Predicted worker-seconds of running and ready work, by which pools scale.",
    ),
    Panel(
        "Time from ready to a worker",
        _quantiles("flowmesh_wait_seconds", "pool"),
        "s",
        "First attempts only. Pools grow so that no worker has more than `targetBacklog` of work "
        "before it, 60 s by default.",
        limit=60.0,
    ),
    Panel(
        "Time of an attempt",
        _quantiles("flowmesh_attempt_seconds", "pool"),
        "s",
        "From the assignment to a worker to the end, with loading.",
    ),
)

_WORK = (
    Panel(
        "Dispatches",
        (Query(_rate("flowmesh_dispatches_total", "pool", 'pool=~"$pool"'), "{{pool}}"),),
        "ops",
        "Attempts assigned to workers per second.",
    ),
    Panel(
        "Hits by kind",
        (Query(_rate("flowmesh_action_cache_hits_total", "kind"), "{{kind}}"),),
        "ops",
        "Published before, merged with one in flight, or a whole step.",
        Kind.STACKED,
    ),
    Panel(
        "Hit share over time",
        (Query(f"{_HIT_RATE} / ({_HIT_RATE} + {_RUN_RATE})", "hits"),),
        "percentunit",
        "Hits among the actions that ended.",
    ),
    Panel(
        "Batch size",
        _quantiles("flowmesh_batch_size", "engine"),
        "short",
        "Actions of one signature that a worker runs together.",
    ),
    Panel(
        "Tokens",
        (
            Query(
                _rate("flowmesh_tokens_total", "model, direction", 'pool=~"$pool"'),
                "{{model}} {{direction}}",
            ),
        ),
        "ops",
        "Input and output tokens per second.",
    ),
    Panel(
        "Share of time spent loading",
        (Query(f"{_LOAD} / ({_LOAD} + {_RUN})", "{{pool}}"),),
        "percentunit",
        "If it stays high, models take turns on too few workers.",
    ),
)

_WORKERS = (
    Panel(
        "Workers by state",
        (Query(f"sum by (pool, state) (flowmesh_workers{_POOL})", "{{pool}} {{state}}"),),
        "short",
        "Connected workers.",
        Kind.STACKED,
    ),
    Panel(
        "Utilisation",
        (Query(f"{_BUSY} / {_ALL}", "{{pool}}"),),
        "percentunit",
        "The share of workers' time with assigned work. Below a tenth FlowMeshPaidWorkersIdle "
        "fires for a pool that costs more than half a dollar an hour.",
        floor=0.1,
    ),
    Panel(
        "Engine hosts",
        (Query("sum by (pool, state) (flowmesh_engine_instances)", "{{pool}} {{state}}"),),
        "short",
        "Loaded engine instances, and those that load.",
        Kind.STACKED,
    ),
    Panel(
        "Power",
        (Query(_rate("flowmesh_joules_total", "pool", 'pool=~"$pool"'), "{{pool}}"),),
        "watt",
        "Joules per second used by attempts; estimated where no meter was read.",
        Kind.STACKED,
    ),
)

_FAILURES = (
    Panel(
        "Steps that failed for good",
        (
            Query(
                "sum by (kind) (increase(flowmesh_steps_failed_total[15m]))",
                "{{kind}}",
            ),
        ),
        "short",
        "By kind, in 15 minutes; docs/states.md explains each. Of one of the fabric's own kinds "
        "the alert FlowMeshStepsFailing allows four.",
        limit=5.0,
    ),
    Panel(
        "Attempts that gave no result",
        (
            Query(
                _rate(
                    "flowmesh_attempts_ended_total",
                    "outcome",
                    _NO_RESULT,
                ),
                "{{outcome}}",
            ),
        ),
        "ops",
        "They are retried where that can help.",
        Kind.STACKED,
    ),
    Panel(
        "Runs that ended",
        (
            Query(
                "sum by (phase) (increase(flowmesh_runs_ended_total[$__rate_interval]))",
                "{{phase}}",
            ),
        ),
        "short",
        "By verdict.",
        Kind.STACKED,
    ),
    Panel(
        "Workers that went away",
        (
            Query(
                "sum by (pool, kind) (increase(flowmesh_workers_gone_total[15m]))",
                "{{pool}} {{kind}}",
            ),
        ),
        "short",
        "In 15 minutes. `lost`: no heartbeat, of which the alert FlowMeshWorkersLost allows two a "
        "pool; `drained`: ended in order.",
        limit=3.0,
    ),
)

_INSIDE = (
    Panel(
        "A scheduling decision",
        (
            Query(_quantile(0.5, "flowmesh_scheduling_cycle_seconds", ""), "median"),
            Query(_quantile(0.99, "flowmesh_scheduling_cycle_seconds", ""), "p99"),
        ),
        "s",
        "The limit is 20 ms for 10,000 ready actions on 100 workers.",
        limit=0.02,
    ),
    Panel(
        "Prediction error",
        (Query(_quantile(0.5, "flowmesh_prediction_error", "engine"), "{{engine}}"),),
        "percentunit",
        "Median relative error of predicted running times. Near 1, predictions are guesses; the "
        "alert FlowMeshPredictionsOff is at 0.7.",
        limit=0.7,
    ),
    Panel(
        "Store operations, p99",
        (Query(_quantile(0.99, "flowmesh_store_seconds", "operation"), "{{operation}}"),),
        "s",
        "Measured by the control plane; with failures. The alert FlowMeshStoreSlow is at 1 s.",
        limit=1.0,
    ),
    Panel(
        "Store errors and retries",
        (
            Query("sum(rate(flowmesh_store_retries_total[$__rate_interval]))", "retries"),
            Query("max(flowmesh_store_writes_failing)", "refuses"),
        ),
        "short",
        "While the store refuses writes, nothing is published and verdicts wait.",
    ),
    Panel(
        "Events and store work that wait",
        (
            Query("sum(flowmesh_event_queue_length)", "events"),
            Query("sum(flowmesh_store_task_queue_length)", "store work"),
        ),
        "short",
        "If it stays in the thousands, the control plane is overloaded.",
        limit=1000.0,
    ),
    Panel(
        "Requests to the API server",
        (Query(_rate("flowmesh_api_requests_total", "verb"), "{{verb}}", needs="operator"),),
        "reqps",
        "By verb; an idle fabric writes nothing but its Lease.",
    ),
)

_STORE = (
    Panel(
        "Stored bytes",
        (Query("max by (use) (flowmesh_stored_bytes)", "{{use}}"),),
        "bytes",
        "Blobs after the last collection: in use, and not old enough to be deleted.",
        Kind.STACKED,
    ),
    Panel(
        "Deleted by collections",
        (
            Query(
                "sum by (kind) (increase(flowmesh_collected_total[$__rate_interval]))", "{{kind}}"
            ),
        ),
        "short",
        "By kind. Evicted results say that the store is at its bound.",
        Kind.STACKED,
    ),
    Panel(
        "Reclaimed",
        (Query("sum(rate(flowmesh_collected_bytes_total[$__rate_interval]))", "bytes a second"),),
        "Bps",
        "Bytes of deleted blobs.",
    ),
    Panel(
        "Collections",
        (
            Query("max(flowmesh_collection_seconds)", "seconds of the last one"),
            Query("max(flowmesh_collection_under_way)", "under way"),
            Query("max(flowmesh_collection_unreadable_runs)", "runs that cannot be read"),
        ),
        "short",
        "The alerts FlowMeshCollectionFailing and FlowMeshCollectionHeldBack fire where none "
        "succeeds, and where content stays since a run cannot be read.",
    ),
)

FABRIC = Board(
    uid="flowmesh-fabric",
    title="FlowMesh / Fabric",
    about="Queue, latency, hits, batches, workers, energy and failures.",
    variables=(("pool", "flowmesh_workers"),),
    rows=(
        ("Now", _NOW),
        ("Queue and latency", _QUEUE),
        ("Work", _WORK),
        ("Workers", _WORKERS),
        ("Failures", _FAILURES),
        ("Inside", _INSIDE),
        ("Store", _STORE),
    ),
)
