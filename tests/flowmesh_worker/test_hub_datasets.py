"""Data sets of a hub: every form of address through both ends, the compiler and the worker.

The compiler makes steps of what a user wrote; a worker's engines run exactly these steps against a
stand-in of the hub with real files.
"""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog
from tests.flowmesh_core.graph.conftest import build
from tests.flowmesh_worker.hub import (
    MANY,
    MODEL,
    TEST,
    TOKEN,
    TRAIN,
    Hub,
    commit,
    parquet,
    questions,
    running,
)

from flowmesh_core.catalog.hub_addresses import ROW_ENDINGS
from flowmesh_core.errors import AttemptError, FailureKind, IdentityError, SpecError
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.plan import StepPlan
from flowmesh_store.datasets import read_rows_file
from flowmesh_worker.engine_api import Blob, BlobInput, HostSettings, Input, Rows, Work
from flowmesh_worker.engines.egress.addresses import ALLOW_VARIABLE
from flowmesh_worker.engines.imports.dataset import DatasetImport
from flowmesh_worker.engines.imports.resolve import Resolve
from flowmesh_worker.engines.imports.sources import HUB_VARIABLE
from flowmesh_worker.secret_values import SecretValues

GSM8K = "hf://datasets/openai/gsm8k"
ODD = "odd/a b/rows+1@2.jsonl"
GOOD: list[tuple[str, str, str]] = [
    # what is written; the canonical address; which rows come (their common word)
    ("hf://org/one", "hf://datasets/org/one", "one"),
    ("hf://datasets/org/one", "hf://datasets/org/one", "one"),
    ("hf://org/one@main", "hf://datasets/org/one@main", "one"),
    ("hf://datasets/org/one@main", "hf://datasets/org/one@main", "one"),
    (f"hf://org/one@{commit('d')}", "hf://datasets/org/one", "one"),
    ("hf://datasets/org/one/data.jsonl", "hf://datasets/org/one/data.jsonl", "one"),
    ("hf://org/one/data.jsonl@main", "hf://datasets/org/one/data.jsonl@main", "one"),
    (f"{GSM8K}/{TRAIN}", f"{GSM8K}/{TRAIN}", "train"),
    (f"{GSM8K}/{TEST}@main", f"{GSM8K}/{TEST}@main", "test"),
    (f"{GSM8K}/{TRAIN}@v1", f"{GSM8K}/{TRAIN}@v1", "older"),
    (f"{GSM8K}/{TRAIN}@{commit('a')}", f"{GSM8K}/{TRAIN}", "older"),
    (f"{GSM8K}@refs/convert/parquet", f"{GSM8K}@refs/convert/parquet", "converted"),
    (f"{GSM8K}@{commit('c')}", GSM8K, "converted"),
    (f"hf://org/{ODD}@main", f"hf://datasets/org/{ODD}@main", "odd"),
]  # fmt: skip
BAD: list[tuple[str, str]] = [
    ("hf://", "names no repository; write hf://datasets/ORG/NAME[/FILE][@REVISION]"),
    ("hf://one", "names no repository"),
    ("hf://datasets/one", "names no repository"),
    ("hf://datasets/org/", "names no repository"),
    ("hf://datasets//one", "names no repository"),
    ("hf://org/one//data.jsonl", "names no repository"),
    ("hf://org/one/../two/data.jsonl", "names no repository"),
    ("hf://org/..", "names no repository"),
    ("hf://or g/one", "names no repository"),
    ("hf://org/one@", "'' is not a revision, which stands at the end"),
    ("hf://org/one@a b", "'a b' is not a revision"),
    (f"{GSM8K}@main/{TRAIN}", f"'main/{TRAIN}' is not a revision, which stands at the end"),
]


def compiled(text: str, **more: Any) -> list[StepPlan]:
    """The steps that import a data set."""
    workflow = build(
        [{"uses": "data.sql", "inputs": {"rows": "inputs.x"}, "with": {"query": "from rows"}}],
        inputs={"x": {"dataset": text, **more}},
    )
    return list(compile_workflow(workflow, builtin_catalog()).steps[:-1])


async def imported(steps: list[StepPlan], secrets: Mapping[str, str] | None = None) -> Any:
    """Runs the steps on a worker's engines, each with what the ones before it gave."""
    made: dict[str, Input] = {}
    rows: Any = None
    for step in steps:
        engine = {"source.resolve": Resolve, "dataset.import": DatasetImport}[step.engine]()
        await engine.load({}, HostSettings((), 512, 1, {}, Path("unused")))
        inputs = {e.port: made[e.sources[0].step] for e in step.edges}  # type: ignore[union-attr]
        work = Work(
            "a",
            "a",
            step.params,
            {},
            inputs,
            Path("unused"),
            secrets=SecretValues.for_any_host(secrets or {}),
        )
        outputs = (await engine.run(work, lambda *_: None)).outputs
        if "pin" in outputs:
            assert isinstance(outputs["pin"], Blob)
            assert isinstance(outputs["pin"].content, bytes)
            made[step.path] = BlobInput("d", outputs["pin"].content)
        else:
            assert isinstance(outputs["rows"], Rows)
            rows = outputs["rows"].rows
    return rows if isinstance(rows, list) else rows.to_pylist()


async def refusal(text: str, **more: Any) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        await imported(compiled(text, **more))
    assert caught.value.failure.kind is FailureKind.BAD_INPUT
    return caught.value


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    async with running() as hub:
        monkeypatch.setenv(HUB_VARIABLE, f"{hub.url}/")
        monkeypatch.setenv(ALLOW_VARIABLE, "127.0.0.1/32")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield hub


@pytest.mark.parametrize(("text", "uri", "word"), GOOD, ids=[row[0] for row in GOOD])
async def test_every_valid_address_is_accepted_by_compiler_and_worker(
    hub: Hub, text: str, uri: str, word: str
) -> None:
    steps = compiled(text)
    assert steps[-1].params["uri"] == uri
    fixed = bool(steps[-1].params["revision"])
    assert [s.engine for s in steps] == ["source.resolve"] * (not fixed) + ["dataset.import"]
    assert await imported(steps) == questions(word)


@pytest.mark.parametrize(("text", "said"), BAD, ids=[row[0] for row in BAD])
async def test_every_invalid_address_is_refused_by_compiler_and_worker_in_the_same_words(
    hub: Hub, text: str, said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        compiled(text)
    (problem,) = caught.value.problems
    assert problem.path == "spec.inputs.x.dataset"
    assert said in problem.message
    (step,) = compiled(f"hf://org/one@{commit('d')}")
    for engine in (Resolve(), DatasetImport()):
        params = {**step.params, "uri": text, "kind": "dataset"}
        work = Work("a", "a", params, {}, {}, Path("unused"))
        with pytest.raises(AttemptError) as refused:
            await engine.run(work, lambda *_: None)
        assert refused.value.failure.message == problem.message
    assert hub.asked == []


async def test_two_spellings_of_a_repository_cause_one_import() -> None:
    first, second = compiled("hf://org/one@main"), compiled("hf://datasets/org/one@main")
    assert [s.params for s in first] == [s.params for s in second]


async def test_parts_of_one_file_are_read_in_order(hub: Hub) -> None:
    rows = await imported(compiled("hf://org/parts"))
    assert rows == [row for n in range(3) for row in questions(f"part {n}")]


async def test_a_run_keeps_its_commit_when_the_branch_moves(hub: Hub) -> None:
    pin, load = compiled(f"{GSM8K}/{TRAIN}@main")
    work = Work("a", "a", pin.params, {}, {}, Path("unused"))
    found = (await Resolve().run(work, lambda *_: None)).outputs["pin"]
    assert isinstance(found, Blob)
    assert isinstance(found.content, bytes)
    assert json.loads(found.content)["revision"] == commit("b")
    hub.branches["openai/gsm8k"]["main"] = commit("a")
    inputs: dict[str, Input] = {"pin": BlobInput("d", found.content)}
    work = Work("a", "a", load.params, {}, inputs, Path("unused"))
    rows = (await DatasetImport().run(work, lambda *_: None)).outputs["rows"]
    assert isinstance(rows, Rows)
    assert rows.rows.to_pylist() == questions("train")  # type: ignore[attr-defined]
    assert await imported([pin, load]) == questions("older")


PARTS: list[tuple[str, dict[str, Any], str]] = [
    # what is written; how it is chosen; which rows come (their common word)
    ("openai/gsm8k", {"config": "main", "split": "train"}, "train"),
    ("openai/gsm8k", {"config": "main", "split": "test"}, "test"),
    ("openai/gsm8k", {"config": "socratic"}, "socratic"),
    ("openai/gsm8k", {"config": "main", "split": "train", "revision": "v1"}, "older"),
    ("openai/gsm8k", {"config": "main", "split": "train", "revision": commit("a")}, "older"),
    ("openai/gsm8k", {"config": "socratic", "revision": commit("b")}, "socratic"),
    ("org/named", {"split": "train"}, "train"),
    ("org/named", {"split": "validation"}, "validation"),
    ("org/named", {"config": "default", "split": "test"}, "test"),
    ("org/converted", {"config": "b", "split": "test"}, "b test"),
    ("org/one", {"split": "train"}, "one"),
]


@pytest.mark.parametrize("form", ["hf://", "hf://datasets/"])
@pytest.mark.parametrize(("name", "part", "word"), PARTS)
async def test_a_part_is_chosen_by_config_split_and_revision(
    hub: Hub, form: str, name: str, part: dict[str, Any], word: str
) -> None:
    steps = compiled(form + name, **part)
    is_fixed = part.get("revision", "") in (commit("a"), commit("b"))
    assert [s.engine for s in steps] == ["source.resolve"] * (not is_fixed) + ["dataset.import"]
    assert await imported(steps) == questions(word)


@pytest.mark.parametrize(
    ("name", "part", "said"),
    [
        ("openai/gsm8k", {}, "openai/gsm8k has configs main, socratic; say config:"),
        ("openai/gsm8k", {"split": "train"}, "has configs main, socratic; say config:"),
        (
            "openai/gsm8k",
            {"config": "mian", "split": "train"},
            "no config 'mian' in openai/gsm8k; there is main, socratic",
        ),
        (
            "openai/gsm8k",
            {"config": "main", "split": "trian"},
            "no split 'trian' in openai/gsm8k main; there is train, test",
        ),
        (
            "openai/gsm8k",
            {"config": "main"},
            "openai/gsm8k main has splits train, test; say split:",
        ),
        ("org/many", {}, "org/many main has splits train, validation, test; say split:"),
        ("org/script", {"split": "train"}, "org/script is a loading script, which is not run"),
        ("org/gap", {"split": "train"}, "has 1 of the 2 parts of x"),
    ],
)
async def test_a_part_that_is_missing_or_ambiguous_is_refused_by_the_step_that_resolves(
    hub: Hub, name: str, part: dict[str, Any], said: str
) -> None:
    resolve = compiled(f"hf://{name}", **part)[0]
    assert resolve.engine == "source.resolve"
    with pytest.raises(AttemptError) as caught:
        await imported([resolve])
    assert caught.value.failure.kind is FailureKind.BAD_INPUT
    assert said in caught.value.failure.message


async def test_the_pin_of_a_model_has_the_bytes_that_are_fetched_where_they_are_wanted(
    hub: Hub,
) -> None:
    pins = []
    for more in ({}, {"sizes": True}):
        params = {"uri": "hf://org/model@main", "kind": "model", **more}
        work = Work("a", "a", params, {}, {}, Path("unused"), secrets=SecretValues.for_any_host({}))
        content = (await Resolve().run(work, lambda *_: None)).outputs["pin"]
        assert isinstance(content, Blob)
        assert isinstance(content.content, bytes)
        pins.append(json.loads(content.content))
    plain = {"uri": "hf://org/model@main", "revision": commit("1")}
    size = len(MODEL["config.json"]) + len(MODEL["model.safetensors"])
    assert pins == [plain, {**plain, "size": size}]


async def test_a_limit_fetches_no_file_beyond_the_rows_that_it_takes(hub: Hub) -> None:
    part = {"config": "main", "split": "train"}
    rows = await imported(compiled("hf://org/many", **part, limit=30))
    assert rows == questions("train 0", 40)[:30]
    assert [path for host, path, _ in hub.asked if host == "store"] == [
        f"/org/many/{commit('4')}/{MANY[0]}"
    ]
    hub.asked.clear()
    rows = await imported(compiled("hf://org/many", **part, limit=100, columns=["question"]))
    wanted = [row for n in range(3) for row in questions(f"train {n}", 40)][:100]
    assert rows == [{"question": row["question"]} for row in wanted]
    assert len([path for host, path, _ in hub.asked if host == "store"]) == 3
    assert len(await imported(compiled("hf://org/many", **part))) == 400


@pytest.mark.parametrize("split", ["validation", "test"])
async def test_rows_of_every_format_are_limited(hub: Hub, split: str) -> None:
    chosen = {"config": "main", "split": split, "limit": 1, "columns": ["answer"]}
    assert await imported(compiled("hf://org/many", **chosen)) == [{"answer": f"{split} 0!"}]


async def test_a_column_that_is_missing_is_named_with_those_that_exist(hub: Hub) -> None:
    error = await refusal(f"{GSM8K}/{TRAIN}", columns=["anser"])
    assert "no column 'anser'; there is answer, question" in error.failure.message


async def test_a_chosen_part_is_named_by_its_commit_and_files_and_an_old_pin_is_unchanged(
    hub: Hub,
) -> None:
    async def pin(text: str, **part: Any) -> dict[str, Any]:
        step = compiled(text, **part)[0]
        made = await Resolve().run(
            Work("a", "a", step.params, {}, {}, Path("unused")), lambda *_: None
        )
        blob = made.outputs["pin"]
        assert isinstance(blob, Blob)
        assert isinstance(blob.content, bytes)
        return dict(json.loads(blob.content))

    assert await pin("hf://org/parts") == {
        "uri": "hf://datasets/org/parts",
        "revision": commit("e"),
    }
    found = await pin("hf://openai/gsm8k", config="main", split="test")
    assert found["files"] == [[TEST, len(parquet(questions("test")))]]
    assert (found["config"], found["split"]) == ("main", "test")


@pytest.mark.parametrize(
    ("text", "said", "remedy"),
    [
        ("hf://org/gap", "has 1 of the 2 parts of x", "another revision"),
        ("hf://org/gap@worse", "has 2 of the 3 parts of x", "another revision"),
        ("hf://org/unlike", "its parts have different columns", "name one of them"),
        (
            "hf://org/script",
            "org/script is a loading script, which is not run",
            "use revision: refs/convert/parquet",
        ),
        ("hf://org/none", "HTTP status 401", "check the name; a gated or private"),
        ("hf://org/gated", "HTTP status 401", "as the secret HF_TOKEN"),
        ("hf://org/one@v9", "HTTP status 404", "check name, revision and file"),
        (f"hf://org/one@{commit('0')}", "HTTP status 404", "check name, revision and file"),
        ("hf://org/one/other.jsonl", "HTTP status 404", "check name, revision and file"),
        ("hf://org/one/README.md", "not a format of rows", "use one of"),
    ],
)
async def test_a_missing_hub_repository_is_reported_with_a_remedy(
    hub: Hub, text: str, said: str, remedy: str
) -> None:
    error = await refusal(text)
    assert said in error.failure.message
    assert remedy in error.failure.remedy


async def test_a_token_reads_gated_data_sets_and_is_sent_only_to_the_hub(hub: Hub) -> None:
    secrets = {"HF_TOKEN": TOKEN}
    assert await imported(compiled("hf://org/gated"), secrets) == questions("gated")
    assert await imported(compiled(f"{GSM8K}/{TRAIN}"), secrets) == questions("train")
    assert {a for host, _, a in hub.asked if host == "hub"} == {f"Bearer {TOKEN}"}
    assert [a for host, _, a in hub.asked if host == "store"] == [""]


async def test_a_worker_that_may_not_reach_the_hub_sends_no_request(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for text in ("hf://org/one", f"hf://org/one@{commit('d')}"):
        assert "HF_HUB_OFFLINE is set" in str(await refusal(text))
    assert hub.asked == []


async def test_a_model_that_is_named_as_a_data_set_is_refused_at_admission() -> None:
    workflow = build([{}], inputs={"x": {"model": GSM8K}})
    with pytest.raises(SpecError, match=f"{GSM8K}' is a data set; write dataset: {GSM8K}"):
        compile_workflow(workflow, builtin_catalog())


@pytest.mark.parametrize("ending", ROW_ENDINGS)
def test_every_file_extension_of_rows_has_a_reader(ending: str) -> None:
    with pytest.raises(IdentityError) as caught:
        read_rows_file(f"x{ending}", b"\xff")
    assert "not a format of rows" not in str(caught.value)
