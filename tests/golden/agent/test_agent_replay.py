"""Goldens of the worker agent: equal events get equal instructions and reports.

A difference here is a change of behaviour. Where it is meant, ``make golden`` records them anew.
"""

from functools import cache
from typing import get_args

import msgspec
import pytest
from tests.golden.agent import recording
from tests.golden.agent.kinds import EVENTS, FULL_REPORT, INSTRUCTIONS, START, SYNC
from tests.golden.agent.recording import FOLDER, GOLDENS, replay
from tests.golden.recording import SUFFIX, Line

from flowmesh_core.worker_agent.events import Event
from flowmesh_core.worker_agent.instructions import Instruction

BYTES_MAX = 500_000
REPORTS = {FULL_REPORT, SYNC}


@cache
def golden(name: str) -> list[Line]:
    return recording.golden(name)


def test_every_event_and_every_instruction_has_a_unique_kind() -> None:
    assert set(EVENTS) == set(get_args(Event))
    assert set(INSTRUCTIONS) == set(get_args(Instruction))
    for table in (EVENTS, INSTRUCTIONS):
        assert len(set(table.values())) == len(table)
    assert not {START, *REPORTS} & set(EVENTS.values())


def test_there_is_a_small_golden_of_each_scenario() -> None:
    files = list(FOLDER.iterdir())
    assert {f.name for f in files} == {f"{name}{SUFFIX}" for name in GOLDENS}
    assert sum(f.stat().st_size for f in files) < BYTES_MAX


def test_every_kind_of_event_and_instruction_occurs_in_some_golden() -> None:
    lines = [line for name in GOLDENS for line in golden(name)]
    assert {line.kind for line in lines} == {START, *REPORTS, *EVENTS.values()}
    answers = (msgspec.json.decode(line.commands) for line in lines if line.kind not in REPORTS)
    assert {kind for answer in answers for kind, _ in answer} == set(INSTRUCTIONS.values())


@pytest.mark.parametrize("name", GOLDENS)
def test_the_agent_answers_the_events_of_a_golden_as_it_did(name: str) -> None:
    replay(golden(name))


def test_a_difference_is_shown_with_both_lists_of_instructions() -> None:
    lines = list(golden("timeouts"))
    number = next(n for n, line in enumerate(lines) if b'"run-attempt"' in bytes(line.commands))
    changed = bytes(lines[number].commands).replace(b'"run-attempt"', b'"walk-attempt"')
    lines[number] = msgspec.structs.replace(lines[number], commands=msgspec.Raw(changed))
    with pytest.raises(AssertionError, match=f"^line {number + 1}, host-loaded at ") as raised:
        replay(lines)
    recorded, now = str(raised.value).split("\nnow:\n")
    assert "walk-attempt" in recorded
    assert "run-attempt" in now
