"""``fmesh serve FILE``: the example of three components answers as plain Python code does."""

import json
import runpy
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.flowmesh_cli.calling import end_workers, fmesh, started

from flowmesh_cli.exit_codes import ExitCode

EXAMPLE = Path(__file__).parents[2] / "examples" / "services" / "ask-docs.yaml"
MODEL = "smollm2-135m-instruct"
QUESTION = "What is the capital of Italy?"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_workers(tmp_path)


def composed(client: openai.OpenAI, question: str) -> dict[str, Any]:
    """Returns the reply of the example, called part by part."""
    search = runpy.run_path(str(EXAMPLE.parent / "search.py"))["Search"]()
    best = runpy.run_path(str(EXAMPLE.parent / "rerank.py"))["best"]
    (hits,) = search.compute([{"question": question, "k": 3}])
    (chosen,) = best([{"question": question, "found": hits}])
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": f"{chosen['text']}\n\n{question}"}],
        max_tokens=24,
        temperature=0,
    )
    return {"text": answer.choices[0].message.content, "sources": chosen["rows"]}


@pytest.mark.slow
@pytest.mark.model
def test_the_example_answers_as_its_parts_do(folder: Path) -> None:
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
            wanted = composed(client, QUESTION)
        reply = httpx.post(url, json={"question": QUESTION}, headers=token, timeout=60)
        assert reply.json() == wanted
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
        serving.process.send_signal(signal.SIGINT)
        assert serving.end() == ExitCode.OK


def test_problems_of_a_file_are_shown_with_their_lines(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("component: search", "component: serch")
    (tmp_path / "wrong.yaml").write_text(text.replace("./rerank.py", "./nothing.py"))
    done = fmesh("serve", "wrong.yaml", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "search.py" in done.stderr  # its code is read from the file's folder
    for name in ("search.py", "rerank.py"):
        (tmp_path / name).write_text((EXAMPLE.parent / name).read_text())
    (tmp_path / "wrong.yaml").write_text(text)
    done = fmesh("serve", "wrong.yaml", cwd=tmp_path)
    assert "no component 'serch'; did you mean 'search'?" in done.stderr
    assert "wrong.yaml:" in done.stderr
