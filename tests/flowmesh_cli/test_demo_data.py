"""The questions of the demo: those of the first team are whole chunks of the second team's."""

import json
import runpy
from pathlib import Path

from flowmesh_core.dataset import Manifest
from flowmesh_store.datasets import rows_to_chunks

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"


def manifest(name: str) -> Manifest:
    lines = (DEMO / name).read_text().splitlines()
    return rows_to_chunks([json.loads(line) for line in lines])[0]


def test_every_chunk_of_the_first_teams_questions_is_one_of_the_seconds() -> None:
    few = {chunk.rows: chunk.count for chunk in manifest("questions.jsonl").chunks}
    many = {chunk.rows: chunk.count for chunk in manifest("more-questions.jsonl").chunks}
    assert few.items() <= many.items()
    assert (len(few), len(many)) == (2, 3)
    assert (sum(few.values()), sum(many.values())) == (48, 80)


def test_the_questions_are_those_that_their_program_writes() -> None:
    files = runpy.run_path(str(DEMO / "make_questions.py"))["files"]()
    for name, rows in files.items():
        assert (DEMO / name).read_text() == "".join(json.dumps(row) + "\n" for row in rows)
