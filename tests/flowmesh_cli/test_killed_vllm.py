"""``kill -9`` of the control process while vLLM generates, then the same command."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, end_workers, started, until
from tests.flowmesh_cli.test_killed import epoch, outputs, published, ran_again

pytestmark = [pytest.mark.nightly, pytest.mark.model]

TEAMS = "abc"
COMMAND = ("run", *(f"flow-{t}.yaml" for t in TEAMS), "policy.yaml")


def flow(extra: int) -> dict[str, Any]:
    """Samples 48 rows in several chunks, then keeps this tenant's part."""
    return {
        "inputs": {"base": {"model": "./tiny"}, "questions": {"dataset": "./questions.jsonl"}},
        "steps": [
            {
                "name": "sample",
                "uses": "llm.generate",
                "inputs": {"model": "inputs.base", "rows": "inputs.questions"},
                "with": {
                    "prompt": "the quick {{ question }}",
                    "samples": 2,
                    "dtype": "float32",
                    "maxTokens": 48,
                    "seed": 7,
                },
            },
            {
                "name": "keep",
                "uses": "data.sql",
                "inputs": {"rows": "sample.rows"},
                "with": {
                    "query": f"select *, {extra} as part from rows where sample < {1 + extra % 2}"
                },
            },
        ],
        "outputs": {"rows": "keep.rows"},
    }


def lay_out(folder: Path, model: Path) -> None:
    (folder / "tiny").symlink_to(model)
    flows.questions(folder, rows=96)
    for n, team in enumerate(TEAMS):
        flows.write(folder, f"flow-{team}", flow(n), namespace=f"team-{team}")
    flows.policy(folder, *(f"team-{t}" for t in TEAMS))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> list[dict[str, str]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    lay_out(folder, tiny_model)
    return outputs(answer(*COMMAND, cwd=folder, timeout_s=1000))


@pytest.fixture
def folder(tmp_path: Path, tiny_model: Path) -> Iterator[Path]:
    lay_out(tmp_path, tiny_model)
    yield tmp_path
    end_workers(tmp_path)


def test_a_run_survives_a_kill_of_the_control_process_while_vllm_generates(
    folder: Path, expected: list[dict[str, str]]
) -> None:
    kills = []
    for count in (1, 2):
        with started(*COMMAND, cwd=folder) as run:
            until(
                lambda n=count: len(published(folder)) >= n or run.process.poll() is not None,
                within_s=400,
            )
            run.kill()
        kills.append((epoch(folder), published(folder)))
    again = answer(*COMMAND, cwd=folder, timeout_s=1000)
    assert outputs(again) == expected
    after = published(folder)
    for killed_in, before in kills:
        assert {name: after[name] for name in before} == before
        assert ran_again(folder, before, killed_in) == []
