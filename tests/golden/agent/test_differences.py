"""The worker agent does what the old one did, but for differences that are named.

``changed_effects`` has those that change single effects, ``undone`` those after which everything
else happens at other times.
"""

from functools import cache

import msgspec
import pytest
from tests.golden.agent.changed_effects import RULES, explained
from tests.golden.agent.format import OLD, Effect, Recording, path_of, read_recording
from tests.golden.agent.undone import UNDONE
from tests.golden.agent.virtual.worker import effects_of

NAMES = sorted(path.name for path in OLD.glob("*.json"))


@cache
def recording(name: str) -> Recording:
    return read_recording(OLD / name)


@cache
def effects_now(name: str, without: str = "") -> list[Effect]:
    """What the agent does with all differences undone but one."""
    undo = [difference.undo for key, difference in UNDONE.items() if key != without]
    return effects_of(recording(name).scenario, undo)


def first_difference(old: list[Effect], new: list[Effect]) -> str:
    """Returns the effects of the first moment at which two lists differ; empty where none do."""
    lines = {
        one: [msgspec.json.encode(e).decode() for e in many]
        for one, many in (("-", old), ("+", new))
    }
    only = [
        (effect[0], sign, line)
        for sign, other, many in (("-", "+", old), ("+", "-", new))
        for effect, line in zip(many, lines[sign], strict=True)
        if line not in lines[other]
    ]
    begin_s = min((t for t, _, _ in only), default=None)
    return "\n".join(f"{sign} {line}" for t, sign, line in only if t == begin_s)


@pytest.mark.parametrize("name", NAMES)
def test_the_agent_behaves_like_the_old_one_except_for_named_differences(name: str) -> None:
    old, new = explained(recording(name).scenario, recording(name).effects, effects_now(name))
    assert not first_difference(old, new), "first without an explanation (- old, + new)"
    assert old == new


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_explains_a_difference(rule: str) -> None:
    def is_needed(name: str) -> bool:
        one = recording(name)
        old, new = explained(one.scenario, one.effects, effects_now(name), without=rule)
        return old != new

    assert any(map(is_needed, NAMES))


@pytest.mark.parametrize("difference", UNDONE)
def test_a_named_difference_is_visible_in_its_scenario(difference: str) -> None:
    name = path_of(UNDONE[difference].scenario).name
    one = recording(name)
    old, new = explained(one.scenario, one.effects, effects_now(name, difference))
    assert old != new
