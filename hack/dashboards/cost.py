"""The cost dashboard: payments, savings by sharing, remaining budgets, energy."""

from hack.dashboards.panel import Board, Kind, Panel, Query

_BY = '{tenant=~"$tenant",pool=~"$pool",model=~"$model"}'
_WINDOW = "[$__rate_interval]"
_HOUR = 3600


def _total(metric: str) -> str:
    """Returns a sum over leaders: the total continues under each, and two may report at once."""
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
        "What the runs of the selected tenants have paid since the accounts began.",
        Kind.NUMBER,
    ),
    Panel(
        "Saved by sharing",
        (Query(_total(_SAVED)),),
        "currencyUSD",
        "What runs would have paid to execute the actions whose results they reused.",
        Kind.NUMBER,
    ),
    Panel(
        "Share saved",
        (Query(f"{_total(_SAVED)} / ({_total(_SAVED)} + {_total(_PAID)})"),),
        "percentunit",
        "Savings as a share of what all runs would have paid without sharing.",
        Kind.NUMBER,
    ),
    Panel(
        "Bill of all workers",
        (Query("max(flowmesh_bill_usd_total)"),),
        "currencyUSD",
        "The bill is what runs and services have paid, plus the fabric account, plus the cost so"
        " far of running attempts.",
        Kind.NUMBER,
    ),
    Panel(
        "Fabric account",
        (Query("max(flowmesh_fabric_usd)"),),
        "currencyUSD",
        "The fabric account: idle, boot and lost time, and replica attempts. If it is large, pools"
        " are too large or scale too slowly.",
        Kind.NUMBER,
    ),
    Panel(
        "Price of all workers",
        (
            Query(
                "sum(sum by (pool) (flowmesh_workers) * on (pool) group_left ()"
                " max by (pool) (flowmesh_worker_price_usd_per_hour)) or vector(0)"
            ),
        ),
        "currencyUSD",
        "What the connected workers cost, in dollars per hour.",
        Kind.NUMBER,
    ),
)

_SPLIT = tuple(
    Panel(
        f"{verb} an hour, by {label}",
        _per_hour(metric, label),
        "currencyUSD",
        f"{about}, in dollars per hour.",
        Kind.STACKED,
    )
    for label in ("tenant", "pool", "model")
    for verb, metric, about in (
        ("Paid", _PAID, "Paid by runs"),
        ("Saved", _SAVED, "Saved by sharing"),
    )
)

_BUDGETS = (
    Panel(
        "Budget left",
        (Query('sum by (tenant) (flowmesh_budget_left_usd{tenant=~"$tenant"})', "{{tenant}}"),),
        "currencyUSD",
        "Dollars that are left of the budgets of live runs.",
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
        "Near 0 the next action is not dispatched, since the budget cannot cover the cost reserved"
        " for it. The alert FlowMeshBudgetNearlySpent fires below a tenth.",
        floor=0.1,
    ),
)

_ENERGY = (
    Panel(
        "Energy paid by tenant",
        _watts(_J, "tenant"),
        "watt",
        "Joules per second; estimated where no meter was read.",
        Kind.STACKED,
    ),
    Panel(
        "Energy saved by tenant",
        _watts(_J_SAVED, "tenant"),
        "watt",
        "Energy that executing the hits would have used, in joules per second.",
        Kind.STACKED,
    ),
    Panel(
        "Energy by model",
        _watts(_J, "model"),
        "watt",
        "Joules per second. A trained model counts under the imported model that it was trained"
        " from.",
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
        "At 1, all energy is estimated from power draw and time; at 0, all of it was metered.",
    ),
)

COST = Board(
    uid="flowmesh-cost",
    title="FlowMesh / Cost",
    about="Dollars and joules: what was paid, what sharing saved, and what is left of budgets.",
    variables=(("tenant", _PAID), ("pool", _PAID), ("model", _PAID)),
    rows=(
        ("Since the accounts began", _TOTALS),
        ("Who pays and who saves", _SPLIT),
        ("Budgets", _BUDGETS),
        ("Energy", _ENERGY),
    ),
)
