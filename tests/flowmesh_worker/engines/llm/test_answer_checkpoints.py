"""Responses and tokens of an action survive the end of its host."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from flowmesh_worker.engine_api import TreeInput, Work
from flowmesh_worker.engines.llm.answer_checkpoints import (
    JOURNAL,
    STORE_EVERY_S,
    AnswerCheckpoints,
    Answers,
)

ENGINE = "an engine"
RESPONSE = {"status_code": 200, "body": {"id": "x"}}
Unfinished = Callable[[], Mapping[str, Sequence[int]]]


class Action:
    """An attempt of an action, with a clock that the test moves."""

    def __init__(self, folder: Path, resume: Path | None = None, engine: str = ENGINE) -> None:
        self.now_s = 0.0
        self.stored: list[tuple[Path, float]] = []
        self.journals: list[tuple[Path, float]] = []
        self._looks = asyncio.Semaphore(0)
        self._looked = asyncio.Semaphore(0)
        work = Work(
            action_id="a",
            attempt_id="a/1",
            params={},
            fields={},
            inputs={},
            out_dir=folder,
            checkpoint=lambda path, done: self.stored.append((path, done)),
            journal=lambda path, done: self.journals.append((path, done)),
        )
        if resume is not None:
            work = replace(work, resume=TreeInput("d", resume))
        folder.mkdir(exist_ok=True)
        self.checkpoints = AnswerCheckpoints(work, engine, lambda: self.now_s, self._pause)

    async def _pause(self, _: float) -> None:
        self._looked.release()
        await self._looks.acquire()

    @contextlib.asynccontextmanager
    async def watched(self, unfinished: Unfinished) -> AsyncIterator[None]:
        task = asyncio.create_task(self.checkpoints.watch(unfinished))
        await self._looked.acquire()
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def look(self) -> None:
        """Has it look at the tokens once, and waits until it has."""
        self._looks.release()
        await self._looked.acquire()


@pytest.fixture
async def action(tmp_path: Path) -> AsyncIterator[Action]:
    first = Action(tmp_path / "first")
    yield first
    first.checkpoints.close()


def restored(folder: Path, resume: Path, *keys: str, engine: str = ENGINE) -> Answers:
    checkpoints = Action(folder, resume, engine).checkpoints
    with contextlib.closing(checkpoints):
        return checkpoints.restored(keys)


async def test_a_response_is_in_the_journal_at_once(action: Action, tmp_path: Path) -> None:
    await action.checkpoints.answered("a", RESPONSE)
    [(journal, done)] = action.journals
    assert done == 1
    assert not action.stored
    assert restored(tmp_path / "next", journal, "a", "b") == Answers({"a": RESPONSE})


async def test_tokens_are_in_the_journal_once_each(action: Action, tmp_path: Path) -> None:
    tokens = {"a": [1, 2], "b": list[int]()}
    async with action.watched(lambda: tokens):
        await action.look()
        tokens["a"] += [3]
        tokens["b"] += [4]
        await action.look()
        await action.look()
    journal, done = action.journals[-1]
    lines = [json.loads(line) for line in (journal / JOURNAL).read_text().splitlines()]
    assert lines[1:] == [
        ["tokens", "a", 0, [1, 2]],
        ["tokens", "a", 2, [3]],
        ["tokens", "b", 0, [4]],
    ]
    assert 0 < action.journals[0][1] < done < 1
    found = restored(tmp_path / "next", journal, "a", "b")
    assert found == Answers(tokens=tokens)
    await action.checkpoints.answered("a", RESPONSE)
    assert action.journals[-1][1] > done
    found = restored(tmp_path / "after", journal, "a", "b")
    assert found == Answers({"a": RESPONSE}, {"b": [4]})


async def test_what_was_restored_is_in_the_next_journal(action: Action, tmp_path: Path) -> None:
    async with action.watched(lambda: {"b": [4], "of another action": [1]}):
        await action.look()
    await action.checkpoints.answered("a", RESPONSE)
    again = Action(tmp_path / "again", action.journals[-1][0])
    assert again.checkpoints.restored("ab") == Answers({"a": RESPONSE}, {"b": [4]})
    async with again.watched(lambda: {"b": [4, 5]}):
        await again.look()
    again.checkpoints.close()
    journal = again.journals[-1][0]
    found = restored(tmp_path / "third", journal, "a", "b", "of another action")
    assert found == Answers({"a": RESPONSE}, {"b": [4, 5]})


async def test_copies_are_stored_every_few_seconds(action: Action, tmp_path: Path) -> None:
    await action.checkpoints.answered("a", RESPONSE)
    action.now_s = STORE_EVERY_S
    await action.checkpoints.answered("b", RESPONSE)
    await action.checkpoints.answered("c", RESPONSE)
    [(folder, done)] = action.stored
    assert done == 2
    found = restored(tmp_path / "next", folder, "a", "b", "c")
    assert found == Answers({"a": RESPONSE, "b": RESPONSE})
    await action.checkpoints.store()
    await action.checkpoints.store()
    assert [done for _, done in action.stored] == [2, 3]


async def test_a_journal_is_read_up_to_a_line_that_was_not_written_whole(
    action: Action, tmp_path: Path
) -> None:
    await action.checkpoints.answered("a", RESPONSE)
    journal = action.journals[-1][0]
    whole = (journal / JOURNAL).read_bytes()
    await action.checkpoints.answered("b", RESPONSE)
    both = (journal / JOURNAL).read_bytes()
    for length in range(len(whole), len(both) - 1):
        (journal / JOURNAL).write_bytes(both[:length])
        found = restored(tmp_path / str(length), journal, "a", "b")
        assert found == Answers({"a": RESPONSE})


async def test_tokens_of_another_engine_are_not_continued(action: Action, tmp_path: Path) -> None:
    async with action.watched(lambda: {"b": [4]}):
        await action.look()
    await action.checkpoints.answered("a", RESPONSE)
    journal = action.journals[-1][0]
    found = restored(tmp_path / "next", journal, "a", "b", engine="another")
    assert found == Answers({"a": RESPONSE})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'["flowmesh/answers/2","an engine"]\n["response","a",{}]\n',
        b'["flowmesh/answers/1","an engine"]\n["tokens","a",1,[2]]\n["response","a",{}]\n',
        b'["flowmesh/answers/1","an engine"]\n["tokens","a",0,["x"]]\n',
        b'["flowmesh/answers/1","an engine"]\n["response","a",[]]\n',
        b'["flowmesh/answers/1","an engine"]\n{"a":1}\n',
    ],
)
def test_a_checkpoint_of_another_form_counts_as_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(content)
    assert restored(tmp_path / "next", tmp_path, "a") == Answers()
