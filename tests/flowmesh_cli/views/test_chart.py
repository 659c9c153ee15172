"""Charts as text."""

from flowmesh_cli.views.chart import HEIGHT, WIDTH, chart


def test_the_least_and_the_largest_value_are_at_the_ends_of_the_axes() -> None:
    lines = chart([(0, 10), (5, 2), (10, -1.5)], x="step", y="loss")
    assert lines[0].strip() == "loss"
    assert lines[1] == "  10 │•"
    assert lines[HEIGHT] == "-1.5 │" + " " * (WIDTH - 1) + "•"
    assert lines[-1].split() == ["0", "10", "step"]


def test_a_single_point_is_drawn() -> None:
    assert sum(line.count("•") for line in chart([(3, 3)], x="a", y="b")) == 1
