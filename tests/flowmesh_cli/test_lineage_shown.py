"""The tree of an artifact's lineage as text."""

import pytest
from tests.flowmesh_control.records.test_lineage_index import d, everybody, made

from flowmesh_api.v1.lineage import Direction, RowOrigins
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.lineage import show_origins, show_walk
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.run_lineage import walk_run
from flowmesh_store.memory import MemoryRecords

RUNS = 200


@pytest.fixture
async def lineage() -> LineageIndex:
    """Returns the lineage of many runs that produced the same bytes in different ways."""
    lineage = LineageIndex(MemoryRecords())
    for n in range(RUNS):
        uid, raw, clean = f"u{n:03}", f"raw {n}", f"clean {n}"
        steps = [
            made(uid, "one", {"x": raw}, {"x": clean}, n),
            made(uid, "two", {"x": clean}, {"x": "same"}, n),
        ]
        await lineage.write(uid, steps)
    return lineage


async def test_other_runs_that_made_the_same_digest_are_counted_and_the_first_is_shown(
    lineage: LineageIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    walk = await lineage.walk(d("same"), Direction.UP, everybody)
    show_walk(Terminal(as_json=False), walk)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 6
    assert "in a/run two (u000," in shown[1]
    assert shown[-1].strip() == "also made by 199 other runs; --all-runs shows how"
    show_walk(Terminal(as_json=False), walk, every_way=True)
    assert len(capsys.readouterr().out.splitlines()) > 4 * RUNS


async def test_the_lineage_of_a_runs_output_shows_only_that_run(
    lineage: LineageIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    walk = await walk_run(lineage, d("same"), ("u150", "two"), everybody)
    show_walk(Terminal(as_json=False), walk)
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 5
    assert shown.count("(u150,") == 2
    assert "other run" not in shown


async def test_other_runs_that_made_a_runs_input_are_counted(
    lineage: LineageIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    await lineage.write("user", [made("user", "use", {"x": "same"}, {"x": "end"}, RUNS)])
    show_walk(
        Terminal(as_json=False), await walk_run(lineage, d("end"), ("user", "use"), everybody)
    )
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 8
    assert shown[-1].strip() == "also made by 199 other runs; --all-runs shows how"


def test_an_input_that_was_read_as_a_whole_is_named_in_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_origins(
        Terminal(as_json=False), RowOrigins(d("out"), (), (("vote", "rows", ("9" * 64,)),))
    )
    expected = f"step vote made all of it from every row of data set {'9' * 12} (input rows)\n"
    assert capsys.readouterr().out == expected
