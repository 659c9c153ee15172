"""Metrics of the accounts: dollars, joules, hits.

They show the accounts that were last written, with which the next leader continues. So none of
these counters decreases when a leader ends, even by a crash.
"""

from collections.abc import Iterator

from prometheus_client.core import Metric

from flowmesh_api.v1.enums import HitKind
from flowmesh_control.metrics.families import counter, counters, gauge, gauges
from flowmesh_control.records.accounts import AccountsRecord
from flowmesh_core.machine.state import State
from flowmesh_core.units import NANO_PER_USD

BY = ("tenant", "pool", "model")


def accounts(kept: AccountsRecord) -> Iterator[Metric]:
    """Yields the totals: bill = receipts + services + fabric + unsettled."""
    book = kept.book
    yield counter("flowmesh_bill_usd", "Cost of all workers.", _usd(book.bill_nanousd))
    yield counter(
        "flowmesh_receipts_usd", "Dollars that all runs have paid.", _usd(book.receipts_nanousd)
    )
    yield counter(
        "flowmesh_services_usd",
        "Dollars that the replicas of all services have cost.",
        _usd(book.services_nanousd),
    )
    yield gauge(
        "flowmesh_fabric_usd",
        "Dollars that no run and no service pays, such as for idle, boot and lost time and for"
        " replica attempts.",
        _usd(book.fabric_nanousd),
    )
    yield gauge(
        "flowmesh_unsettled_usd",
        "Cost so far of attempts that have not ended.",
        _usd(book.unsettled_nanousd),
    )
    yield counter("flowmesh_actions_executed", "Actions that were executed.", book.executed)
    yield counters(
        "flowmesh_action_cache_hits",
        "Actions that did not have to be executed because their result was reused, by kind of hit.",
        ["kind"],
        [
            ([HitKind.PUBLISHED], book.hits_published),
            ([HitKind.IN_FLIGHT], book.hits_in_flight),
            ([HitKind.STEP_LEVEL], book.hits_step_level),
        ],
    )


def shares(kept: AccountsRecord) -> Iterator[Metric]:
    """Yields what was paid and saved, by tenant, pool and model."""
    rows = [((r.tenant, r.pool, r.model), r.share) for r in kept.shares]
    yield counters(
        "flowmesh_paid_usd",
        "Dollars that runs have paid, by tenant, pool and model.",
        BY,
        [(key, _usd(s.paid_nanousd)) for key, s in rows],
    )
    yield counters(
        "flowmesh_saved_usd",
        "Dollars that executing the hits would have cost, by tenant, pool and model.",
        BY,
        [(key, _usd(s.saved_nanousd)) for key, s in rows],
    )
    yield counters(
        "flowmesh_joules",
        "Joules that runs have paid for, by tenant, pool and model; estimated if no meter was"
        " read.",
        (*BY, "estimated"),
        [
            row
            for key, s in rows
            for row in (
                ((*key, "false"), s.joules - s.joules_estimated),
                ((*key, "true"), s.joules_estimated),
            )
            if row[1] > 0.0
        ],
    )
    yield counters(
        "flowmesh_saved_joules",
        "Joules that executing the hits would have used, by tenant, pool and model.",
        BY,
        [(key, s.joules_saved) for key, s in rows],
    )


def budgets(state: State) -> Iterator[Metric]:
    """Yields the budgets of live runs, by tenant."""
    totals: dict[str, int] = {}
    remaining: dict[str, int] = {}
    for run in state.runs.values():
        if run.budget_nanousd:
            tenant = state.figures.tenant(run.plan.namespace, state.ticked_s)
            totals[tenant] = totals.get(tenant, 0) + run.budget_nanousd
            rest = max(0, run.budget_nanousd - run.paid_nanousd)
            remaining[tenant] = remaining.get(tenant, 0) + rest
    yield gauges(
        "flowmesh_budget_usd",
        "Budgets of live runs, by tenant.",
        ["tenant"],
        [([t], _usd(n)) for t, n in sorted(totals.items())],
    )
    yield gauges(
        "flowmesh_budget_left_usd",
        "Dollars that are left of the budgets of live runs, by tenant.",
        ["tenant"],
        [([t], _usd(n)) for t, n in sorted(remaining.items())],
    )


def _usd(nanousd: int) -> float:
    return nanousd / NANO_PER_USD
