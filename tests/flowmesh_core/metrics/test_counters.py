"""Counters that stay few, and shares that go on."""

from flowmesh_core.metrics.counters import SHARES_MAX, TENANTS_MAX, MachineCounters
from flowmesh_core.metrics.histogram import Histogram
from flowmesh_core.metrics.label_limits import OTHER, RECENT_S, LabelLimiter


def pay(figures: MachineCounters, tenant: str, now_s: float = 0.0, nanousd: int = 10) -> None:
    figures.paid(tenant, "cpu", "smol", nanousd=nanousd, joules=2.0, estimated=True, now_s=now_s)


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    found = Histogram((1, 2, 4))
    for value in (0.5, 1, 3, 9):
        found.observe(value)
    assert found.cumulative() == [("1", 2.0), ("2", 2.0), ("4", 3.0), ("+Inf", 4.0)]
    assert found.total == 13.5


def test_names_beyond_the_limit_are_counted_as_other_until_one_is_idle_for_long() -> None:
    gone: list[str] = []
    labels = LabelLimiter(2, gone.append)
    assert [labels.name(n, 0.0) for n in ("a", "b", "c", "a")] == ["a", "b", OTHER, "a"]
    labels.name("a", RECENT_S)
    assert labels.name("c", RECENT_S + 1) == "c"
    assert gone == ["b"]
    assert labels.name("b", RECENT_S + 1) == OTHER


def test_a_thousand_tenants_produce_a_bounded_number_of_series() -> None:
    figures = MachineCounters()
    for n in range(1000):
        pay(figures, f"t{n}")
    assert len(figures.shares) == TENANTS_MAX + 1
    assert figures.shares[OTHER, "cpu", "smol"].paid_nanousd == (1000 - TENANTS_MAX) * 10
    assert sum(s.paid_nanousd for s in figures.shares.values()) == 10_000


def test_combinations_are_bounded_too() -> None:
    figures = MachineCounters()
    for n in range(3 * SHARES_MAX):
        figures.saved("t", f"pool{n}", "", nanousd=1, joules=0.0, now_s=0.0)
    assert len(figures.shares) == SHARES_MAX + 1
    assert sum(s.saved_nanousd for s in figures.shares.values()) == 3 * SHARES_MAX


def test_a_tenant_that_returns_after_its_eviction_starts_at_zero() -> None:
    figures = MachineCounters()
    for n in range(TENANTS_MAX):
        pay(figures, f"t{n}", now_s=float(n))
    pay(figures, "new", now_s=RECENT_S + 0.5)
    assert ("t0", "cpu", "smol") not in figures.shares
    assert figures.shares["new", "cpu", "smol"].paid_nanousd == 10


def test_shares_continue_under_the_next_leader() -> None:
    first, second = MachineCounters(), MachineCounters()
    pay(first, "a")
    first.saved("a", "", "", nanousd=5, joules=1.0, now_s=0.0)
    rows = first.rows()
    pay(first, "a")  # what was kept does not change any more
    second.restore(rows, 1.0)
    pay(second, "a")
    assert second.shares["a", "cpu", "smol"].paid_nanousd == 20
    assert second.shares["a", "cpu", "smol"].joules_estimated == 4.0
    assert second.shares["a", "none", "none"].saved_nanousd == 5


def test_a_predictions_error_is_a_share_of_the_longer_time() -> None:
    figures = MachineCounters()
    figures.predicted("data.sql", 1.0, 4.0)
    figures.predicted("data.sql", 4.0, 1.0)
    figures.predicted("data.sql", 0.0, 0.0)
    assert figures.error["data.sql"].total == 1.5
    assert sum(figures.error["data.sql"].counts) == 2
