"""Arrivals by day and night."""

from random import Random

import pytest

from flowmesh_sim.run.arrivals import arrival_times
from flowmesh_sim.scenario import Arrivals


def arrivals(**fields: float) -> Arrivals:
    values = {"kind": "diurnal", "perMinute": 4.0, "toPerMinute": 0.2, "periodS": 7200.0}
    return Arrivals.model_validate({**values, **fields})


def test_most_runs_arrive_around_the_peak() -> None:
    times = arrival_times(arrivals(afterS=60.0), 1000, Random(1))
    assert times == sorted(times)
    assert times[0] > 60.0
    by_day = sum(0.25 < (t - 60.0) % 7200.0 / 7200.0 < 0.75 for t in times)
    assert 0.75 < by_day / 1000 < 0.9, "79 % are expected in that half of the period"


def test_the_mean_rate_lies_between_night_and_day() -> None:
    times = arrival_times(arrivals(), 1000, Random(2))
    assert 1000 / (times[-1] / 60.0) == pytest.approx(2.1, rel=0.15)


def test_the_night_must_be_quieter_than_the_day() -> None:
    with pytest.raises(ValueError, match="toPerMinute must be less than perMinute"):
        arrivals(toPerMinute=5.0)
