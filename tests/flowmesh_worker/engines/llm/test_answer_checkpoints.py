"""Responses of an action survive the end of its host."""

from dataclasses import replace
from pathlib import Path

from flowmesh_worker.engine_api import TreeInput, Work
from flowmesh_worker.engines.llm.answer_checkpoints import EVERY_S, AnswerCheckpoints

ANSWERS = {"a": {"status_code": 200, "body": {"id": "x"}}}


def work_in(folder: Path, saved: list[tuple[Path, float]]) -> Work:
    return Work(
        action_id="a",
        attempt_id="a/1",
        params={},
        fields={},
        inputs={},
        out_dir=folder,
        checkpoint=lambda path, done: saved.append((path, done)),
    )


async def test_responses_are_saved_every_few_seconds_and_restored(tmp_path: Path) -> None:
    now_s, saved = [0.0], list[tuple[Path, float]]()
    work = work_in(tmp_path, saved)
    checkpoints = AnswerCheckpoints(work, lambda: now_s[0])
    await checkpoints.save(ANSWERS)
    assert not saved
    now_s[0] = EVERY_S
    await checkpoints.save(ANSWERS)
    await checkpoints.save(ANSWERS)
    [(folder, done)] = saved
    assert done == 1
    resumed = replace(work, resume=TreeInput("d", folder))
    assert AnswerCheckpoints(resumed).restored() == ANSWERS


def test_a_damaged_checkpoint_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text("{")
    work = replace(work_in(tmp_path, []), resume=TreeInput("d", tmp_path))
    assert AnswerCheckpoints(work).restored() == {}
