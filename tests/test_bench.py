"""The benchmarks start, give all contestants the same work, and keep the rest of the page."""

import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hack import nightly

BENCH = Path(__file__).parents[1] / "bench"
sys.path.append(str(BENCH))

import batch_invariance  # noqa: E402 - found on the path set above
import batch_kills  # noqa: E402 - as above
import graphs  # noqa: E402 - as above
import many_workflows  # noqa: E402 - as above
import results  # noqa: E402 - as above
import serving_soak  # noqa: E402 - as above
import serving_tenants  # noqa: E402 - as above
import store_soak  # noqa: E402 - as above
from auc import Separation  # noqa: E402 - as above
from channel_rows import Row, table  # noqa: E402 - as above
from plan_range import EXAMPLES, Range, chosen, other, with_other_rows  # noqa: E402 - as above
from up_process import Usage  # noqa: E402 - as above


@pytest.mark.parametrize(
    "name",
    [
        *("dispatch", "first-read", "growth", "sharing", "status"),
        *("serving-iterations", "serving-tenants"),
    ],
)
def test_a_benchmark_of_the_page_accepts_its_options_and_has_a_section(name: str) -> None:
    script = BENCH / f"{name.replace('-', '_')}.py"
    asked = [sys.executable, str(script), "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "--draft" in done.stdout
    page = (results.SERVING_PAGE if name.startswith("serving") else results.PAGE).read_text()
    assert results.replaced(page, name, "anew\n") != page


@pytest.mark.parametrize(
    ("script", "option", "wrong", "there"),
    [
        ("plan_range", "--only", "debate,debat", "no example 'debat'; there are best-of-four, "),
        ("serving_chain", "--only", "Flowmesh", "no contestant has 'Flowmesh' in its name; there"),
        ("side_channels", "--only", "hit", "choose from "),
        ("first_read", "--shapes", "short", "choose from 'short texts', "),
        ("revoke", "--stores", "s4", "choose from 'directory', 's3'"),
    ],
)
def test_a_name_that_there_is_not_is_refused_with_those_that_there_are(
    script: str, option: str, wrong: str, there: str
) -> None:
    command = [sys.executable, str(BENCH / f"{script}.py"), option, wrong]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert there in " ".join(done.stderr.split())


def test_examples_are_chosen_by_their_names_with_folders_or_without() -> None:
    assert chosen("debate,agent,post-training/sft-lora") == [
        "agent",
        "inference/debate",
        "post-training/sft-lora",
    ]


@pytest.mark.parametrize(("kills", "generated", "code"), [(1, 104, 0), (0, 100, 1), (1, 106, 1)])
def test_a_batch_without_a_kill_or_with_too_many_tokens_proves_nothing(
    tmp_path: Path, kills: int, generated: int, code: int
) -> None:
    batch = batch_kills.Batch(tmp_path)
    batch.publish(tmp_path / "rows.json", json.dumps([{}]))
    usage = {"prompt_tokens": 10, "completion_tokens": 100}
    answers = [{"status_code": 200, "body": {"usage": usage}}]
    batch.publish(batch.answers(0), json.dumps(answers))
    batch_kills.TokenCounter(tmp_path / "tokens").add(10, generated)
    assert batch_kills.report(batch, kills, 60.0, 1.05) == code


def test_goodput_counts_answers_in_time_at_the_load_that_has_the_most() -> None:
    def turn(*latencies_s: float) -> serving_tenants.Turn:
        return serving_tenants.Turn(max(latencies_s), 10 * len(latencies_s), latencies_s, 1.0)

    turns = {
        (serving_tenants.ONE, 1): [turn(1.0), turn(1.0)],
        (serving_tenants.ONE, 2): [turn(1.5, 1.6), turn(1.5, 1.6)],
        (serving_tenants.ONE, 4): [turn(1.0, 2.0, 3.0, 4.0), turn(1.0, 3.0, 3.0, 4.0)],
        (serving_tenants.FOUR, 1): [turn(2.0)],
    }
    load, goodput = serving_tenants.best_goodput(turns, serving_tenants.ONE, 2.5)
    assert (load, goodput) == (2, [12.5, 12.5])
    assert serving_tenants.best_goodput(turns, serving_tenants.FOUR, 2.5) == (1, [5.0])


def test_a_plan_is_held_where_its_range_has_the_run_and_is_narrow_enough() -> None:
    assert Range(1.0, 8.0, 4.0).is_held(8.0)
    assert not Range(1.0, 8.0, 4.0).is_held(2.0)
    assert not Range(1.0, 2.0, 4.0).is_held(8.0)
    assert not Range(1.0, 0.0, 4.0).is_held(8.0), "there is no upper end"


def test_plans_are_repeated_with_as_many_rows_of_other_texts(tmp_path: Path) -> None:
    row = {"question": "What is 19?", "words": ["a", 3]}
    assert other(row) == {"question": "What is 21?", "words": ["a too", 3]}
    for name in EXAMPLES:
        folder = tmp_path / Path(name).name
        folder.mkdir()
        copy = with_other_rows(results.ROOT / "examples" / f"{name}.yaml", folder)
        assert "./" in copy.read_text() or "rows:" in copy.read_text()


class FakeEngine:
    """Answers each prompt by its length, and what it is asked ``warm`` a little differently."""

    def __init__(self, warm: float = 0.0) -> None:
        self.warm = warm
        self.asked = set[str]()

    def __call__(
        self, engine: str, params: dict[str, object], rows: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        assert (engine, params) == ("llm.openai", {"dtype": "float32"})
        return [self.answered(row["body"]) for row in rows]

    def answered(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt, count = body["prompt"], body["max_tokens"]
        off = self.warm if prompt in self.asked else 0.0
        self.asked.add(prompt)
        sizes = [len(prompt) + n for n in range(count)]
        found = {
            "tokens": [str(size % 10) for size in sizes],
            "token_logprobs": [-1.0 / size - off for size in sizes],
        }
        usage = {"prompt_tokens": len(prompt)}
        return {
            "response": {
                "status_code": 200,
                "body": {"choices": [{"logprobs": found}], "usage": usage},
            }
        }


def test_answers_in_different_company_are_compared_token_by_token_without_a_tolerance() -> None:
    tokens = 2 * batch_invariance.ANSWER_TOKENS
    same = batch_invariance.compare("float32", FakeEngine(), FakeEngine())
    assert [(c.count, c.same, c.difference) for c in same] == [(tokens, tokens, 0.0)] * 3
    _, warm, scored = batch_invariance.compare("float32", FakeEngine(1e-9), FakeEngine())
    assert (warm.count, warm.same) == (tokens, 0)
    assert 0.9e-9 < warm.difference < 1.1e-9
    assert scored.same == tokens - 2, "the whole prompts were asked before"
    assert "| cold, and warm prefix | 24 | 0 | 1e-09 |" in batch_invariance.page([warm])


def test_a_result_replaces_its_own_part_of_the_page_only() -> None:
    page = "a <!-- bench:x -->old<!-- end:x --> b <!-- bench:y -->kept<!-- end:y --> c"
    expected = "a <!-- bench:x -->\n\\1 new\n<!-- end:x --> b <!-- bench:y -->kept<!-- end:y --> c"
    assert results.replaced(page, "x", "\\1 new\n") == expected
    with pytest.raises(ValueError, match="no place for z"):
        results.replaced(page, "z", "")


def separation(value: float, lower: float, upper: float) -> Separation:
    return Separation(value, lower, upper, "seconds", 500)


def test_each_part_of_the_side_channels_replaces_its_own_section(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(results.PAGE.read_text())
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    for part in nightly.SIDE_CHANNELS:
        row = Row(part, separation(0.5, 0.45, 0.55), 0.6, separation(1, 1, 1))
        result = results.Result("side-channels", part, page=page)
        result.tables = [table(part, [row])]
        result.save()
    for part in nightly.SIDE_CHANNELS:
        assert f"| {part} | 500 + 500 | 0.500 (seconds) | 0.450 to 0.550 |" in page.read_text()


@pytest.mark.parametrize(
    ("upper", "control", "expected"),
    [(0.6, 0.9, "yes"), (0.61, 0.9, "**no**"), (0.5, 0.89, "**unknown**")],
)
def test_a_bound_holds_only_where_the_control_sees_a_difference(
    upper: float, control: float, expected: str
) -> None:
    row = Row("uploads", separation(0.5, 0.4, upper), 0.6, separation(control, 0, 1))
    assert row.cells[-1] == expected
    assert row.holds == (expected == "yes")
    assert ("not held by" in str(table("", [row]).notes)) != row.holds


@pytest.mark.parametrize("shape", graphs.SHAPES)
def test_a_graph_has_whole_groups_whose_tasks_come_after_earlier_ones(shape: str) -> None:
    found = list(graphs.graph(shape, 400))
    assert sum(map(len, found)) == 400
    for group in found:
        assert all(b < n for n, before in enumerate(group) for b in before)
        after = {b for before in group for b in before}
        assert set(graphs.ends(group)) | after == set(range(len(group)))


def test_arrivals_are_the_same_for_the_same_seed_and_come_at_the_rate() -> None:
    found = graphs.arrivals(200.0, 10.0, 1)
    assert found == graphs.arrivals(200.0, 10.0, 1) != graphs.arrivals(200.0, 10.0, 2)
    assert found == sorted(found)
    assert found[-1] == pytest.approx(10.0, rel=0.1)


@pytest.mark.slow
def test_dispatch_runs_every_shape_and_half_load_on_two_stores() -> None:
    asked = [sys.executable, str(BENCH / "dispatch.py"), "--draft", "--count", "100"]
    asked += ["--rounds", "1", "--load-s", "0.5", "--peers", "--stores", "filesystem", "memory"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    for shape in graphs.SHAPES:
        row = rf"^\| {shape}(?: \(\d+\))? \| [\d,]+ .*\| [\d,]+ "
        assert re.search(row, done.stdout, re.MULTILINE), done.stdout
    assert "ready to sent" in done.stdout


def used(number: float, *, control: float = 0, descriptors: float = 0, stored: float = 0) -> Usage:
    """What a fabric uses after so many workflows, given what each adds."""
    stored_bytes = {"cas": int(1e6 + stored * number)}
    return Usage(
        int(1e8 + control * number), int(2e8), int(60 + descriptors * number), stored_bytes
    )


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ({}, ""),
        ({"control": 500.0, "stored": 100.0}, ""),
        ({"control": 4000.0}, "control plane"),
        ({"descriptors": 0.01}, "descriptors"),
        ({"stored": 20_000.0}, "state folder"),
    ],
    ids=str,
)
def test_many_workflows_fail_where_the_second_half_adds_more_than_its_bound(
    added: dict[str, float], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = [(count, used(count, **added)) for count in range(1000, 21_000, 1000)]
    assert many_workflows.report(seen, 0) == bool(expected)
    broken = capsys.readouterr().out.splitlines()[:-1]
    assert [line.startswith(expected) for line in broken] == [True] * bool(expected)
    assert many_workflows.report(seen, 1) == 1, "a workflow failed"


@pytest.mark.parametrize(
    ("stored", "wrong", "executed", "expected"),
    [
        (0.0, [], 1, 0),
        (20_000.0, [], 1, 1),
        (0.0, ["fresh: 3 rows of 2000, or others"], 1, 1),
        (0.0, [], 99, 1),
    ],
)
def test_the_store_soak_fails_where_the_store_grows_or_an_output_is_wrong(
    stored: float, wrong: list[str], executed: int, expected: int
) -> None:
    findings = store_soak.Findings(wrong=wrong, executed=executed)
    findings.right.update({"fresh": 5, "popular": 5, "slow": 5})
    seen = [(float(at_s), used(at_s, stored=stored)) for at_s in range(0, 600, 5)]
    assert store_soak.report(findings, seen, 600.0) == expected
    findings.right["slow"] = 0
    assert store_soak.report(findings, seen, 600.0) == 1, "no slow workflow has ended"


def memory_of(growth_mb_per_h: float, rng: random.Random) -> list[tuple[float, float]]:
    """The memory of a process in two hours: it warms up, and garbage waits to be collected."""
    samples = []
    for number in range(1440):
        at_s = 5.0 * number
        warm_mb = 20.0 * (1 - math.exp(-at_s / 600))
        garbage_mb = rng.random() if number % 7 else 0.0
        grown_mb = growth_mb_per_h * at_s / 3600
        samples.append((at_s, (100.0 + warm_mb + garbage_mb + grown_mb) * 1e6))
    return samples


@pytest.mark.parametrize("seed", [1, 2, pytest.param(random.randrange(1 << 30), id="fresh")])
def test_the_serving_soak_fails_where_a_process_leaks_three_megabytes_an_hour(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    rng = random.Random(seed)
    memory = {"router-1": memory_of(3.0, rng), "hub 0 of w": memory_of(0.0, rng)}
    slopes = serving_soak.slopes_of(memory, 7200.0)
    assert slopes == {
        "router-1": pytest.approx(3.0, abs=0.3),
        "hub 0 of w": pytest.approx(0.0, abs=0.3),
    }
    (broken,) = serving_soak.growing(slopes, 7200.0)
    assert broken.startswith("router-1 grows by ")
    assert serving_soak._report([NO_LOAD], memory, 7200.0, []) == 1
    assert "1 broken bounds" in capsys.readouterr().out
    steady = {**memory, "router-1": memory_of(0.5, rng)}
    assert serving_soak._report([NO_LOAD], steady, 7200.0, []) == 0


NO_LOAD: Any = SimpleNamespace(ok=1, refused=0, wrong=[], doubled=[], failed={})
