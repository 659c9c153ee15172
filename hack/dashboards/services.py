"""The dashboard of services: requests, latency, tokens, replicas, and what they cost."""

from hack.dashboards.panel import Board, Kind, Panel, Query

_BY = '{service=~"$service"}'
_WINDOW = "[$__rate_interval]"
_HOUR = 3600
_FAILURES = 'service=~"$service",outcome="failed"'
_ROUTER = "router"
"""Only a Prometheus that scrapes a router has these metrics."""
_REPLICA = "replica"
"""Only a control plane that has sent a worker a replica has these metrics."""


def _rate(metric: str, labels: str) -> str:
    return f"sum by ({labels}) (rate({metric}{_BY}{_WINDOW}))"


def _quantiles(metric: str) -> tuple[Query, ...]:
    return tuple(
        Query(
            f"histogram_quantile({q}, {_rate(f'{metric}_bucket', 'le, service')})",
            f"{{{{service}}}} {name}",
            needs=_ROUTER,
        )
        for q, name in ((0.5, "p50"), (0.99, "p99"))
    )


_ENDED = 'service=~"$service",outcome=~"ok|failed"'
_MISSED = (
    f"{_rate('flowmesh_service_slo_missed_total', 'service')} / "
    f"sum by (service) (rate(flowmesh_service_requests_total{{{_ENDED}}}{_WINDOW}))"
)
_MISSED_TOKENS = tuple(
    (
        f"{_rate(f'flowmesh_service_{name}_missed_total', 'service')} / "
        f"{_rate(f'flowmesh_service_{name}_seconds_count', 'service')}",
        f"{{{{service}}}} {name}",
    )
    for name in ("ttft", "tpot")
)
_MAY_MISS = f"max by (service) (flowmesh_service_slo_miss_rate{_BY})"
_REQUESTS = f"sum(rate(flowmesh_service_requests_total{_BY}{_WINDOW}))"
_FAILED = f"(sum(rate(flowmesh_service_requests_total{{{_FAILURES}}}{_WINDOW})) or vector(0))"
_SPENT = f"sum(rate(flowmesh_services_usd_total{_WINDOW}))"
_SPENT_BY_SERVICE = _rate("flowmesh_service_usd_total", "service")
_LOAD_BUCKETS = _rate("flowmesh_replica_load_seconds_bucket", "le, service")


def _mean(metric: str, labels: str) -> str:
    return f"{_rate(f'{metric}_sum', labels)} / {_rate(f'{metric}_count', labels)}"


_TOTALS = (
    Panel(
        "Requests",
        (Query(_REQUESTS, needs=_ROUTER),),
        "reqps",
        "Requests that ended, per second, including refused ones.",
        Kind.NUMBER,
    ),
    Panel(
        "Share failed",
        (Query(f"{_FAILED} / {_REQUESTS}", needs=_ROUTER),),
        "percentunit",
        "The share of requests that failed, timed out or lost their replica. Refused requests do"
        " not count as failed.",
        Kind.NUMBER,
    ),
    Panel(
        "p99 latency",
        (
            Query(
                "histogram_quantile(0.99, "
                f"{_rate('flowmesh_service_latency_seconds_bucket', 'le')})",
                needs=_ROUTER,
            ),
        ),
        "s",
        "From a request to the end of its answer, over all selected services.",
        Kind.NUMBER,
    ),
    Panel(
        "In flight",
        (Query(f"sum(flowmesh_service_in_flight{_BY})", needs=_ROUTER),),
        "short",
        "Requests that have not ended, in all routers.",
        Kind.NUMBER,
    ),
    Panel(
        "Replicas",
        (Query(f"sum(max by (service) (flowmesh_service_replicas{_BY}))", needs=_ROUTER),),
        "short",
        "Replicas that accept calls, as seen by the router that is connected to the most replicas.",
        Kind.NUMBER,
    ),
    Panel(
        "Cost per hour",
        (Query(f"{_SPENT} * {_HOUR}"),),
        "currencyUSD",
        "What the replicas of all services cost, in dollars per hour.",
        Kind.NUMBER,
    ),
)

_ASKED = (
    Panel(
        "Requests by outcome",
        (
            Query(
                _rate("flowmesh_service_requests_total", "service, outcome"),
                "{{service}} {{outcome}}",
                needs=_ROUTER,
            ),
        ),
        "reqps",
        "If the share of failed or lost requests grows, read the workers' logs. If that of refused"
        " requests grows, see Refusals by reason.",
        Kind.STACKED,
    ),
    Panel(
        "Refusals by reason",
        (
            Query(
                f"sum by (why) (rate(flowmesh_service_refused_total{_WINDOW}))",
                "{{why}}",
                needs=_ROUTER,
            ),
        ),
        "reqps",
        "`overloaded` and `no_replica` mean that more replicas are needed. All others are mistakes"
        " of clients.",
        Kind.STACKED,
    ),
    Panel(
        "In flight by service",
        (Query(f"sum by (service) (flowmesh_service_in_flight{_BY})", "{{service}}", _ROUTER),),
        "short",
        "Requests that run at a replica, wait there, or are on the way.",
        Kind.STACKED,
    ),
)

_TIMES = (
    Panel(
        "Latency",
        _quantiles("flowmesh_service_latency_seconds"),
        "s",
        "From a request to the end of its answer. Long answers take longer.",
    ),
    Panel(
        "Missed latency targets",
        (
            Query(f"({_MISSED}) and on (service) {_MAY_MISS}", "{{service}}", needs=_ROUTER),
            Query(_MAY_MISS, "{{service}} may", needs=_ROUTER),
        ),
        "percentunit",
        "The share of requests that took longer than slo.latency, and the allowed share,"
        " slo.missRate (`may`). If it is above that, see fmesh services capacity.",
    ),
    Panel(
        "Time to the first event",
        _quantiles("flowmesh_service_ttft_seconds"),
        "s",
        "Of streamed requests. It is the first to grow when replicas are overloaded.",
    ),
    Panel(
        "Time per token",
        _quantiles("flowmesh_service_tpot_seconds"),
        "s",
        "Of streamed answers, after their first event. It grows with the number of calls that an"
        " engine runs at once: see Batches and caps.",
    ),
    Panel(
        "Missed token targets",
        (
            *(
                Query(f"({share}) and on (service) {_MAY_MISS}", legend, needs=_ROUTER)
                for share, legend in _MISSED_TOKENS
            ),
            Query(_MAY_MISS, "{{service}} may", needs=_ROUTER),
        ),
        "percentunit",
        "The share of streams that began later than slo.ttft, that of streams slower than slo.tpot,"
        " and the allowed share, slo.missRate (`may`). Without a target its share is 0.",
    ),
    Panel(
        "Tokens",
        (
            Query(
                _rate("flowmesh_service_tokens_total", "service, direction"),
                "{{service}} {{direction}}",
                needs=_ROUTER,
            ),
        ),
        "ops",
        "Tokens of prompts and of answers, per second.",
    ),
)

_COMPONENT = "service, component"
_COMPONENTS = (
    Panel(
        "Time by component",
        (
            Query(
                _mean("flowmesh_service_queue_seconds", _COMPONENT),
                "{{service}} {{component}} queue",
                needs=_ROUTER,
            ),
            Query(
                _mean("flowmesh_service_compute_seconds", _COMPONENT),
                "{{service}} {{component}} compute",
                needs=_ROUTER,
            ),
        ),
        "s",
        "Mean time of a call at its worker. If the time in the queue is long, add replicas; if the"
        " compute time is long, use a faster device or smaller batches.",
        Kind.STACKED,
    ),
    Panel(
        "Batches and caps",
        (
            Query(
                _mean("flowmesh_service_batch_size", _COMPONENT),
                "{{service}} {{component}}",
                needs=_ROUTER,
            ),
            Query(
                f"max by ({_COMPONENT}) (flowmesh_service_batch_cap{_BY})",
                "{{service}} {{component}} at most",
                needs=_ROUTER,
            ),
        ),
        "short",
        "Mean number of calls in a batch (for an engine, of calls that run at once), and the"
        " maximum (`at most`). Near the maximum, replicas are full.",
    ),
    Panel(
        "Time to choose replicas",
        (
            Query(
                f"sum(rate(flowmesh_service_route_seconds_sum{_WINDOW})) / "
                f"sum(rate(flowmesh_service_route_seconds_count{_WINDOW}))",
                "mean",
                needs=_ROUTER,
            ),
        ),
        "s",
        "Mean time that a router needs to choose the replica for a call, or all replicas of a"
        " route.",
    ),
)

_FLEET = (
    Panel(
        "Replicas by service",
        (
            Query(
                f"max by (service) (flowmesh_service_replicas{_BY})", "{{service}}", needs=_ROUTER
            ),
        ),
        "short",
        "Replicas that accept calls. At 0, all requests to the service are refused.",
    ),
    Panel(
        "Wanted and actual replicas",
        (
            Query(
                f"max by (service, state) (flowmesh_service_replicas_by_state{_BY})",
                "{{service}} {{state}}",
            ),
        ),
        "short",
        "Replicas that there should be (`wanted`), and those that workers report, by state. fmesh"
        " services why says what is missing.",
    ),
    Panel(
        "Time to load a replica",
        (Query(f"histogram_quantile(0.9, {_LOAD_BUCKETS})", "{{service}} p90", _REPLICA),),
        "s",
        "From the assignment of a replica until its worker reports it ready: fetching its models"
        " and starting its engine.",
    ),
    Panel(
        "Failed replicas",
        (
            Query(
                f"sum by (service) (increase(flowmesh_replica_failures_total{_BY}[30m]))",
                "{{service}}",
                needs=_REPLICA,
            ),
        ),
        "short",
        "Failures in 30 minutes, while replicas loaded or after they were ready. From three on, the"
        " alert FlowMeshReplicaCrashLooping fires.",
        limit=3.0,
    ),
    Panel(
        "New serving plans",
        (Query("sum(increase(flowmesh_serving_plans_total[5m]))", "plans"),),
        "short",
        "Plans in five minutes that added a replica to a worker or removed one. If there are many"
        " without a change of load, fmesh services why says what each replica waits for.",
    ),
    Panel(
        "Load and capacity",
        (
            Query(_rate("flowmesh_service_requests_total", "service"), "{{service}}", _ROUTER),
            Query(
                f"max by (service) (flowmesh_service_capacity_per_second{_BY})",
                "{{service}} at most",
                needs=_REPLICA,
            ),
        ),
        "reqps",
        "Requests that ended, per second, and the rate at which the busiest stage or host is busy"
        " all the time (`at most`). Latency grows well before that: see fmesh services capacity.",
    ),
    Panel(
        "Idle time of replicas",
        (
            Query(
                f"sum by (state) (rate(flowmesh_replica_idle_seconds_total{_WINDOW}))",
                "{{state}}",
            ),
        ),
        "short",
        "Workers whose replicas have no call: `used` by batch work, or `unused`, which the services"
        " pay for.",
        Kind.STACKED,
    ),
    Panel(
        "Cost per hour by service",
        (Query(f"{_SPENT_BY_SERVICE} * {_HOUR}", "{{service}}", _REPLICA),),
        "currencyUSD",
        "What the replicas of each service cost, in dollars per hour.",
        Kind.STACKED,
    ),
    Panel(
        "Cost of 1,000 requests",
        (
            Query(
                f"1000 * {_SPENT} / sum(rate(flowmesh_service_requests_total{_WINDOW}))",
                "all services",
                needs=_ROUTER,
            ),
        ),
        "currencyUSD",
        "What all replicas cost, divided by all requests. Idle replicas make it grow.",
    ),
)

SERVICES = Board(
    uid="flowmesh-services",
    title="FlowMesh / Services",
    about="Requests to services, their latency, and the replicas that answer them.",
    variables=(("service", "flowmesh_service_requests_total"),),
    rows=(
        ("Now", _TOTALS),
        ("Requests", _ASKED),
        ("Times and tokens", _TIMES),
        ("Components", _COMPONENTS),
        ("Replicas and cost", _FLEET),
    ),
)
