"""Figures as text."""

import pytest

from flowmesh_cli.views.formatting import energies


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((2522, 14_400), ["~2522 J", "~14400 J"]),
        ((3_600_000, 36_000), ["~1.000 kWh", "~0.010 kWh"]),
        ((0, 12), ["0 J", "~12 J"]),
        ((0, 36_000), ["0.000 kWh", "~0.010 kWh"]),
    ],
)
def test_energies_beside_each_other_have_one_unit(
    values: tuple[float, float], shown: list[str]
) -> None:
    assert energies(*values) == shown
