"""Profiles between and beyond what was measured."""

import pytest

from flowmesh_core.serving.profile import BatchProfile

PROFILE = BatchProfile.of({1: 1.0, 2: 1.5, 4: 2.0})


def test_times_between_two_sizes_are_interpolated() -> None:
    assert PROFILE.at(3) == pytest.approx(1.75)


def test_beyond_the_largest_size_no_batch_is_more_efficient() -> None:
    assert PROFILE.at(8) / 8 == pytest.approx(PROFILE.at(4) / 4)


def test_a_measurement_moves_the_profile_by_its_weight() -> None:
    assert PROFILE.updated(2, 2.5, 0.25).at(2) == pytest.approx(1.75)
    assert PROFILE.updated(3, 1.75, 0.5).sizes == (1, 2, 3, 4)
    assert PROFILE.at(2) == 1.5


def test_the_best_rate_looks_at_every_size_up_to_the_cap() -> None:
    assert PROFILE.best_rate(4) == pytest.approx(2.0)
    assert PROFILE.best_rate(3) == pytest.approx(3 / 1.75)


@pytest.mark.parametrize("seconds", [{}, {2: 1.0}, {1: 0.0}, {1: 1.0, 2: -1.0}])
def test_a_table_without_size_one_or_with_a_time_of_zero_is_refused(
    seconds: dict[int, float],
) -> None:
    with pytest.raises(ValueError, match="profile"):
        BatchProfile.of(seconds)


def test_the_knee_of_sizes_one_by_one_is_that_of_their_halves() -> None:
    every = BatchProfile.of({b: 9.56 + 0.44 * b for b in range(1, 21)})
    assert every.knee() == 19
    halves = every.at_halves()
    assert halves.sizes == (1, 2, 5, 10, 20)
    assert halves.knee() == 20
    assert halves.at(10) == every.at(10)
    assert BatchProfile.of({1: 1.0}).at_halves().sizes == (1,)
