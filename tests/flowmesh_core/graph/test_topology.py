"""Order, cycles, the critical path, and drawings."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.graph.critical_path import remaining_s
from flowmesh_core.graph.render import mermaid, text_tree
from flowmesh_core.graph.topology import find_cycle, order


@st.composite
def graphs(draw: st.DrawFn, *, cycles: bool) -> dict[str, list[str]]:
    names = [f"s{i}" for i in range(draw(st.integers(1, 12)))]
    found = {}
    for i, name in enumerate(names):
        allowed = names if cycles else names[:i]
        parents = draw(st.lists(st.sampled_from(allowed), unique=True)) if allowed else []
        found[name] = parents
    shuffled = draw(st.permutations(names))
    return {name: found[name] for name in shuffled}


@given(graphs(cycles=False))
def test_every_step_comes_after_its_parents(parents: Mapping[str, Sequence[str]]) -> None:
    ordered, depth = order(parents)
    assert sorted(ordered) == sorted(parents)
    at = {name: i for i, name in enumerate(ordered)}
    assert all(at[p] < at[name] for name, ps in parents.items() for p in ps)
    assert 1 <= depth <= len(parents)


@given(graphs(cycles=True))
def test_a_graph_without_an_order_has_a_cycle_that_is_found(
    parents: Mapping[str, Sequence[str]],
) -> None:
    ordered, _ = order(parents)
    if len(ordered) == len(parents):
        return
    cycle = find_cycle(parents, ordered)
    assert cycle[0] == cycle[-1]
    assert len(set(cycle)) == len(cycle) - 1
    for parent, child in pairwise(cycle):
        assert parent in parents[child]


def test_the_seconds_that_remain_are_those_of_the_longest_path(compiled) -> None:
    plan = compiled(
        {},
        {"inputs": {"x": "a.metrics"}},
        {"inputs": {"x": "a.metrics"}},
        {"inputs": {"x": "b.metrics", "y": "c.metrics"}},
    )
    seconds = {"a": 1.0, "b": 5.0, "c": 2.0, "d": 1.0}
    assert remaining_s(plan, seconds) == {"a": 7.0, "b": 6.0, "c": 3.0, "d": 1.0}
    for slow in "bc":
        assert remaining_s(plan, {**seconds, slow: 9.0})["a"] == 11.0


def test_a_plan_is_drawn_as_a_tree_with_each_step_once(compiled) -> None:
    plan = compiled(
        {},
        {"inputs": {"x": "a.metrics"}},
        {"inputs": {"x": "a.metrics"}, "matrix": {"i": list(range(9))}},
        {"inputs": {"x": "b.metrics", "y": "a.metrics"}, "when": "steps['c[i=0]'] != null"},
        outputs={"o": "d.metrics"},
    )
    assert text_tree(plan, note=lambda path: "done" if path == "a" else "") == (
        "w\n"
        "└─ a  test.noop  done\n"
        "   ├─ b  test.noop\n"
        "   └─ c[*] x9  test.noop\n"
        "      └─ d  test.noop  when steps['c[i=0]'] != null  after b, a\n"
        "→ o: d.metrics"
    )


def test_a_plan_is_drawn_as_a_mermaid_flowchart(compiled) -> None:
    plan = compiled(
        {},
        {"inputs": {"x": "a.metrics"}, "when": "steps['a'] != null"},
        {"when": "steps['a'] != null"},
        outputs={"o": "b.metrics"},
    )
    assert mermaid(plan) == (
        "flowchart LR\n"
        '  n0["a<br/>test.noop"]\n'
        '  n1["b<br/>test.noop"]\n'
        '  n2["c<br/>test.noop"]\n'
        "  n0 -->|x| n1\n"
        "  n0 -.->|when| n2\n"
        '  o0[/"o"/]\n'
        "  n1 --> o0"
    )
