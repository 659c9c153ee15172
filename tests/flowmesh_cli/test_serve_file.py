"""``fmesh serve FILE``: the example of three components answers as plain Python code does."""

import json
import math
import runpy
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from ruamel.yaml import YAML
from tests.flowmesh_cli.calling import end_workers, fmesh, started

from flowmesh_cli.exit_codes import ExitCode

EXAMPLE = Path(__file__).parents[2] / "examples" / "services" / "ask-docs.yaml"
INDEX = EXAMPLE.parent / "build-index.yaml"
MODEL = "smollm2-135m-instruct"
yaml = YAML(typ="safe", pure=True)
QUESTION = "What is the capital of Italy?"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_workers(tmp_path)


def embed_question(folder: Path, index: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs the workflow of the index, and its step over the question; returns both outputs.

    Args:
        folder: of the fabric.
        index: the workflow of the example.
    """
    spec = {**index["spec"], "inputs": {**index["spec"]["inputs"]}}
    spec["inputs"]["texts"] = {"rows": [{"text": QUESTION}]}
    question = folder / "question.json"
    question.write_text(json.dumps({**index, "metadata": {"name": "question"}, "spec": spec}))
    done = fmesh("run", str(INDEX), str(question), cwd=folder)
    assert done.returncode == ExitCode.OK, done.stderr
    found = []
    for name in ("build-index", "question"):
        done = fmesh("outputs", name, "--download", name, cwd=folder)
        assert done.returncode == ExitCode.OK, done.stderr
        lines = (folder / name / "vectors.jsonl").read_text().splitlines()
        found.append([json.loads(line) for line in lines])
    texts, (asked,) = found
    return [{**row, "asked": asked["embedding"]} for row in texts]


def composed(client: openai.OpenAI, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the reply of the example, by plain Python and a call of the writer."""

    def nearness(row: dict[str, Any]) -> float:
        dot = sum(a * b for a, b in zip(row["asked"], row["embedding"], strict=True))
        return dot / math.hypot(*row["embedding"])

    hits = sorted(rows, key=nearness, reverse=True)[:3]
    best = runpy.run_path(str(EXAMPLE.parent / "rerank.py"))["best"]
    found = [{"text": row["text"]} for row in hits]
    (chosen,) = best([{"question": QUESTION, "found": found}])
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": f"{chosen['text']}\n\n{QUESTION}"}],
        max_tokens=24,
        temperature=0,
    )
    return {"text": answer.choices[0].message.content, "sources": chosen["rows"]}


def chatted(client: openai.OpenAI) -> str:
    """Returns the answer of the example as a chat model, which is the same streamed or not."""
    asked: dict[str, Any] = {
        "model": "ask-docs",
        "messages": [{"role": "user", "content": QUESTION}],
    }
    whole = client.chat.completions.create(**asked).choices[0].message.content
    with client.chat.completions.create(**asked, stream=True) as stream:
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert streamed == whole
    return streamed


@pytest.mark.nightly
@pytest.mark.model
def test_the_example_answers_as_its_parts_do(folder: Path) -> None:
    rows = embed_question(folder, yaml.load(INDEX))
    model = folder / "model.json"  # the writer alone, with the parameters of the example
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "writer"},
        "spec": {
            "inputs": {"base": {"model": MODEL}},
            "components": {
                "llm": {
                    "uses": "llm.generate",
                    "inputs": {"model": "inputs.base"},
                    "with": {"dtype": "float32"},
                }
            },
            "openai": {"model": MODEL},
        },
    }
    model.write_text(json.dumps(document))
    with started("serve", str(EXAMPLE), str(model), cwd=folder) as serving:
        serving.until("Ctrl-C stops")
        found = json.loads((folder / ".flowmesh/serving/endpoint.json").read_text())
        url = f"{found['url']}/services/default/ask-docs:invoke"
        token = {"Authorization": f"Bearer {found['tokens']['ask-docs']}"}
        with openai.OpenAI(base_url=found["url"], api_key=found["tokens"][MODEL]) as client:
            wanted = composed(client, rows)
        reply = httpx.post(url, json={"question": QUESTION}, headers=token, timeout=60)
        assert reply.json() == wanted
        refused = httpx.post(url, json={"question": ""}, headers=token, timeout=60)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "question")
        assert "Rome" in wanted["sources"][0]
        events = httpx.post(
            url,
            json={"question": QUESTION},
            headers={**token, "Accept": "text/event-stream"},
            timeout=60,
        ).text.strip()
        *pieces, last = [json.loads(event.partition("data: ")[2]) for event in events.split("\n\n")]
        assert "".join(piece["text"] for piece in pieces) == wanted["text"]
        assert last == wanted
        assert len(pieces) > 1
        with openai.OpenAI(base_url=found["url"], api_key=found["tokens"]["ask-docs"]) as client:
            assert chatted(client) == wanted["text"]
        serving.process.send_signal(signal.SIGINT)
        assert serving.end() == ExitCode.OK


def test_problems_of_a_file_are_shown_with_their_lines(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("component: search", "component: serch")
    (tmp_path / "wrong.yaml").write_text(text.replace("./rerank.py", "./nothing.py"))
    done = fmesh("serve", "wrong.yaml", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "nothing.py" in done.stderr  # its code is read from the file's folder
    (tmp_path / "rerank.py").write_text((EXAMPLE.parent / "rerank.py").read_text())
    (tmp_path / "wrong.yaml").write_text(text)
    done = fmesh("serve", "wrong.yaml", cwd=tmp_path)
    assert "no component 'serch'; did you mean 'search'?" in done.stderr
    assert "wrong.yaml:" in done.stderr


def test_validate_checks_what_a_service_asks_of_its_engines(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("maxTokens: 24", "maxTokenz: 24").replace("k: 3", "k: x")
    (tmp_path / "wrong.yaml").write_text(text)
    done = fmesh("validate", "wrong.yaml", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    lines = dict(enumerate(text.splitlines(), 1))
    for field, word in (("maxTokenz", "maxTokens"), ("with.k", "an integer")):
        (line,) = [one for one in done.stderr.splitlines() if field in one]
        number = int(line.split(":")[1])
        assert field.rpartition(".")[2] in lines[number]
        assert word in line
    done = fmesh("validate", str(EXAMPLE), cwd=tmp_path)
    assert "service ask-docs, valid" in done.stdout
