"""Goldens of the machine: equal events give equal commands, and a new leader can recover.

A difference here is a change of behaviour. Where it is meant, ``make golden`` records them anew.
"""

from functools import cache
from typing import get_args

import msgspec
import pytest
from tests.golden.kinds import COMMANDS, EVENTS, START
from tests.golden.recording import GOLDENS, SUFFIX, Line, read_golden
from tests.golden.replaying import Replay
from tests.golden.restarting import ROUNDS, Successor, middle_of, verdicts_of
from tests.golden.scenarios import SCENARIOS

from flowmesh_api.v1.enums import Phase
from flowmesh_core.machine.commands import Command
from flowmesh_core.machine.events import Event

BYTES_MAX = 1_500_000


@cache
def golden(name: str) -> list[Line]:
    return read_golden(name)


def test_every_event_and_every_command_has_a_unique_kind() -> None:
    assert set(EVENTS) == set(get_args(Event))
    assert set(COMMANDS) == set(get_args(Command))
    for table in (EVENTS, COMMANDS):
        assert len(set(table.values())) == len(table)


def test_there_is_a_small_golden_of_each_scenario() -> None:
    files = list(GOLDENS.iterdir())
    assert {f.name for f in files} == {f"{name}{SUFFIX}" for name in SCENARIOS}
    assert sum(f.stat().st_size for f in files) < BYTES_MAX


def test_every_kind_of_event_and_command_occurs_in_some_golden() -> None:
    lines = [line for name in SCENARIOS for line in golden(name)]
    assert {line.kind for line in lines} == {START, *EVENTS.values()}
    answers = (msgspec.json.decode(line.commands) for line in lines)
    assert {kind for answer in answers for kind, _ in answer} == set(COMMANDS.values())


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_machine_answers_the_events_of_a_golden_as_it_did(name: str) -> None:
    lines = golden(name)
    replay = Replay(lines)
    for _ in lines:
        replay.step()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_leader_that_takes_over_midway_completes_the_runs_and_repeats_no_published_work(
    name: str,
) -> None:
    lines = golden(name)
    found, verdicts = middle_of(lines), verdicts_of(lines)
    assert found.runs, "there is something to take over"
    assert found.published, "and something that must not be repeated"
    world = Successor.of(found)
    world.run(rounds=ROUNDS)
    assert set(world.finals) == set(found.runs)
    assert world.executed_again(found) == []
    before = {uid for uid in found.runs if verdicts[uid] == Phase.SUCCEEDED}
    assert {world.finals[uid].phase for uid in before} <= {Phase.SUCCEEDED}


def test_a_difference_is_shown_with_both_lists_of_commands() -> None:
    lines = list(golden("first-answer"))
    number = next(n for n, line in enumerate(lines) if b'"assign"' in bytes(line.commands))
    changed = bytes(lines[number].commands).replace(b'"timeout_s":', b'"timeout_h":')
    assert changed != bytes(lines[number].commands)
    lines[number] = msgspec.structs.replace(lines[number], commands=msgspec.Raw(changed))
    replay = Replay(lines)
    for _ in range(number):
        replay.step()
    with pytest.raises(AssertionError, match=f"^line {number + 1}, decided at ") as raised:
        replay.step()
    recorded, now = str(raised.value).split("commands now:")
    assert "timeout_h" in recorded
    assert "timeout_s" in now
