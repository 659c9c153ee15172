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
        "Actions that are ready but not assigned to a worker yet.",
        Kind.NUMBER,
    ),
    Panel(
        "Running attempts",
        (Query("sum(flowmesh_actions_running)"),),
        "short",
        "Attempts that are assigned to workers.",
        Kind.NUMBER,
    ),
    Panel("Workers", (Query("sum(flowmesh_workers)"),), "short", "Connected workers.", Kind.NUMBER),
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
        "Increases by one with each takeover or restart of the control plane.",
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
        "If actions wait and none runs, see the causes in the panel Why actions wait.",
    ),
    Panel(
        "Why actions wait",
        (Query("sum by (cause) (flowmesh_actions_rejected)", "{{cause}}"),),
        "short",
        "Why the last scheduling cycle did not place them; only `busy` is harmless.",
        Kind.STACKED,
    ),
    Panel(
        "Backlog by pool",
        (Query(f"sum by (pool) (flowmesh_backlog_seconds{_POOL})", "{{pool}}"),),
        "s",
        "Predicted worker-seconds of running and ready work. Pools scale by it.",
    ),
    Panel(
        "Time from ready to a worker",
        _quantiles("flowmesh_wait_seconds", "pool"),
        "s",
        "From ready to assigned to a worker, first attempts only. Pools grow so that no worker has"
        " more than `targetBacklog` of work ahead of it, 60 s by default.",
        limit=60.0,
    ),
    Panel(
        "Time of an attempt",
        _quantiles("flowmesh_attempt_seconds", "pool"),
        "s",
        "From the assignment to a worker until the end, including loading.",
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
        "By where the result came from: an action published before, an action in flight, or a whole"
        " step published before.",
        Kind.STACKED,
    ),
    Panel(
        "Hit share over time",
        (Query(f"{_HIT_RATE} / ({_HIT_RATE} + {_RUN_RATE})", "hits"),),
        "percentunit",
        "The share of hits among the actions that ended.",
    ),
    Panel(
        "Batch size",
        _quantiles("flowmesh_batch_size", "engine"),
        "short",
        "Attempts of one signature that a worker has after a batch was assigned to it.",
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
        "The share of attempts' time spent waiting for models to load. If it stays high, several"
        " models take turns on too few workers.",
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
        "The share of time in which workers had work. Below a tenth, the alert"
        " FlowMeshPaidWorkersIdle fires for a pool whose idle workers cost more than half a dollar"
        " an hour.",
        floor=0.1,
    ),
    Panel(
        "Engine hosts",
        (Query("sum by (pool, state) (flowmesh_engine_instances)", "{{pool}} {{state}}"),),
        "short",
        "Engine instances of workers, by state.",
        Kind.STACKED,
    ),
    Panel(
        "Power",
        (Query(_rate("flowmesh_joules_total", "pool", 'pool=~"$pool"'), "{{pool}}"),),
        "watt",
        "Joules per second that attempts use; estimated where no meter was read.",
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
        "In 15 minutes, by kind of failure; docs/states.md explains each. The alert"
        " FlowMeshStepsFailing fires from five failures of one of the kinds that the fabric itself"
        " causes.",
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
        "Attempts that failed, by outcome. They are retried if a retry can help.",
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
        "Ended runs, by phase.",
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
        "In 15 minutes. `lost`: the heartbeats stopped; from three in one pool the alert"
        " FlowMeshWorkersLost fires. `drained`: the worker ended in an orderly way.",
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
        "The target is 20 ms with 10,000 ready actions on 100 workers.",
        limit=0.02,
    ),
    Panel(
        "Prediction error",
        (Query(_quantile(0.5, "flowmesh_prediction_error", "engine"), "{{engine}}"),),
        "percentunit",
        "Median relative error of predicted run times. Near 1, predictions are guesses. The alert"
        " FlowMeshPredictionsOff fires above 0.7.",
        limit=0.7,
    ),
    Panel(
        "Store operations, p99",
        (Query(_quantile(0.99, "flowmesh_store_seconds", "operation"), "{{operation}}"),),
        "s",
        "As measured by the control plane, including failed operations. The alert FlowMeshStoreSlow"
        " fires if the p90 of operations on records is above 1 s.",
        limit=1.0,
    ),
    Panel(
        "Store errors and retries",
        (
            Query("sum(rate(flowmesh_store_retries_total[$__rate_interval]))", "retries"),
            Query("max(flowmesh_store_writes_failing)", "refuses"),
        ),
        "short",
        "While the store refuses writes (`refuses` is 1), no result is published and no run ends.",
    ),
    Panel(
        "Events and store work that wait",
        (
            Query("sum(flowmesh_event_queue_length)", "events"),
            Query("sum(flowmesh_store_task_queue_length)", "store work"),
        ),
        "short",
        "If either stays in the thousands, the control plane is overloaded.",
        limit=1000.0,
    ),
    Panel(
        "Requests to the API server",
        (Query(_rate("flowmesh_api_requests_total", "verb"), "{{verb}}", needs="operator"),),
        "reqps",
        "To the Kubernetes API server, by verb. An idle fabric writes only its Lease.",
    ),
)

_STORE = (
    Panel(
        "Stored bytes",
        (Query("max by (use) (flowmesh_stored_bytes)", "{{use}}"),),
        "bytes",
        "Bytes of blobs after the last collection: in use, and unused but not old enough to be"
        " deleted.",
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
        "What was deleted, by kind. Evicted results mean that the store has reached its limit.",
        Kind.STACKED,
    ),
    Panel(
        "Reclaimed",
        (Query("sum(rate(flowmesh_collected_bytes_total[$__rate_interval]))", "bytes a second"),),
        "Bps",
        "Bytes of deleted blobs, per second.",
    ),
    Panel(
        "Collections",
        (
            Query("max(flowmesh_collection_seconds)", "seconds of the last one"),
            Query("max(flowmesh_collection_under_way)", "under way"),
            Query("max(flowmesh_collection_unreadable_runs)", "runs that cannot be read"),
        ),
        "short",
        "The alert FlowMeshCollectionFailing fires if no collection succeeds,"
        " FlowMeshCollectionHeldBack if content is not deleted because the records of a run cannot"
        " be read.",
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
        ("Control plane", _INSIDE),
        ("Store", _STORE),
    ),
)
