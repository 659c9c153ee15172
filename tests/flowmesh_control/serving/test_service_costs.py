"""What services cost an hour, against a bill that grows in virtual time."""

from flowmesh_control.serving.service_costs import LEAST_S, WINDOW_S, ServiceCosts

HOUR_S = 3600


def test_the_cost_is_that_of_the_last_minutes() -> None:
    """A dollar an hour, then three: half a window later the mean of both, then three."""
    costs, spent = ServiceCosts(), 0
    for second in range(3000):
        usd_per_hour = 1 if second < 1500 else 3
        spent += usd_per_hour * 10**9 // HOUR_S
        costs.observe("t/ask", spent, float(second))
        found = round(costs.nanousd_per_hour("t/ask") / 10**9, 1)
        if second < LEAST_S:
            assert found == 0.0
        elif second == 1500 + WINDOW_S / 2:
            assert found == 2.0
        elif second in (1499, 2999):
            assert found == usd_per_hour
    assert costs.nanousd_per_hour("t/other") == 0
    costs.keep([])
    assert costs.nanousd_per_hour("t/ask") == 0
