"""The dashboard of cost: who pays, what sharing saves, what budgets have left."""

from hack.dashboards.panel import Board, Kind, Panel, Query

_BY = '{tenant=~"$tenant",pool=~"$pool",model=~"$model"}'
_WINDOW = "[$__rate_interval]"
_HOUR = 3600


def _total(metric: str) -> str:
    """A total that goes on under every leader; for a moment two of them may show it."""
    return f"sum(max by (tenant, pool, model) ({metric}{_BY}))"


def _per_hour(metric: str, label: str) -> tuple[Query, ...]:
    expr = f"sum by ({label}) (rate({metric}{_BY}{_WINDOW})) * {_HOUR}"
    return (Query(expr, f"{{{{{label}}}}}"),)


def _watts(metric: str, label: str) -> tuple[Query, ...]:
    return (Query(f"sum by ({label}) (rate({metric}{_BY}{_WINDOW}))", f"{{{{{label}}}}}"),)


_PAID, _SAVED = "flowmesh_paid_usd_total", "flowmesh_saved_usd_total"
_J, _J_SAVED = "flowmesh_joules_total", "flowmesh_saved_joules_total"

_TOTALS = (
    Panel(
        "Paid",
        (Query(_total(_PAID)),),
        "currencyUSD",
        "What the chosen tenants' runs have paid since the accounts began.",
        Kind.NUMBER,
    ),
    Panel(
        "Saved by sharing",
        (Query(_total(_SAVED)),),
        "currencyUSD",
        "What hits would have cost those who had them.",
        Kind.NUMBER,
    ),
    Panel(
        "Share saved",
        (Query(f"{_total(_SAVED)} / ({_total(_SAVED)} + {_total(_PAID)})"),),
        "percentunit",
        "Saved, of what everybody alone would have paid.",
        Kind.NUMBER,
    ),
    Panel(
        "Bill of all workers",
        (Query("max(flowmesh_bill_usd_total)"),),
        "currencyUSD",
        "Bill = paid by runs + the fabric's own + what attempts under way have run up.",
        Kind.NUMBER,
    ),
    Panel(
        "The fabric's own",
        (Query("max(flowmesh_fabric_usd)"),),
        "currencyUSD",
        "Idle, boot, lost and replica time. Much of it: pools are too large, or scale too slowly.",
        Kind.NUMBER,
    ),
    Panel(
        "Price of the fleet",
        (
            Query(
                "sum(sum by (pool) (flowmesh_workers) * on (pool) group_left ()"
                " max by (pool) (flowmesh_worker_price_usd_per_hour)) or vector(0)"
            ),
        ),
        "currencyUSD",
        "Dollars an hour of the workers that are connected now.",
        Kind.NUMBER,
    ),
)

_SPLIT = tuple(
    Panel(
        f"{verb} an hour, by {label}",
        _per_hour(metric, label),
        "currencyUSD",
        f"{about}, in dollars an hour.",
        Kind.STACKED,
    )
    for label in ("tenant", "pool", "model")
    for verb, metric, about in (
        ("Paid", _PAID, "What runs paid"),
        ("Saved", _SAVED, "What sharing saved"),
    )
)

_BUDGETS = (
    Panel(
        "Budget left",
        (Query('sum by (tenant) (flowmesh_budget_left_usd{tenant=~"$tenant"})', "{{tenant}}"),),
        "currencyUSD",
        "Of the live runs that have a budget.",
    ),
    Panel(
        "Share of budgets left",
        (
            Query(
                'sum by (tenant) (flowmesh_budget_left_usd{tenant=~"$tenant"})'
                ' / sum by (tenant) (flowmesh_budget_usd{tenant=~"$tenant"})',
                "{{tenant}}",
            ),
        ),
        "percentunit",
        "Near 0 the next action is not dispatched: its reservation does not fit.",
    ),
)

_ENERGY = (
    Panel(
        "Energy paid by tenant",
        _watts(_J, "tenant"),
        "watt",
        "Joules a second; estimated where no meter was read.",
        Kind.STACKED,
    ),
    Panel(
        "Energy saved by tenant",
        _watts(_J_SAVED, "tenant"),
        "watt",
        "What hits would have used.",
        Kind.STACKED,
    ),
    Panel(
        "Energy by model",
        _watts(_J, "model"),
        "watt",
        "Under the imported model that a trained one descends from.",
        Kind.STACKED,
    ),
    Panel(
        "Estimated share of energy",
        (
            Query(
                'sum(flowmesh_joules_total{estimated="true"}) / sum(flowmesh_joules_total)',
                "estimated",
            ),
        ),
        "percentunit",
        "1: every joule is power draw times time; 0: every joule was read from a meter.",
    ),
)

COST = Board(
    uid="flowmesh-cost",
    title="FlowMesh / Cost",
    about="Dollars and joules: paid, saved by sharing, left of budgets.",
    variables=(("tenant", _PAID), ("pool", _PAID), ("model", _PAID)),
    rows=(
        ("Since the accounts began", _TOTALS),
        ("Who pays and who saves", _SPLIT),
        ("Budgets", _BUDGETS),
        ("Energy", _ENERGY),
    ),
)
