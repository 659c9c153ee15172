"""A batch of OpenAI's requests on ``fmesh up`` and a real model; its engine is killed once."""

import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from openai import OpenAI
from openai.types import Batch
from tests.builtin_model import NAME as MODEL
from tests.builtin_model import builtin_model
from tests.flowmesh_cli.calling import answer, fmesh, owner, until
from tests.flowmesh_cli.shared_fabric import SharedFabric
from tests.vllm_run_batch import bodies_by_id, said, vllm_run_batch

pytestmark = [pytest.mark.nightly, pytest.mark.model]

CHAT = "/v1/chat/completions"
QUESTIONS = [f"What is {i} + {i + 3}?" for i in range(40)]
Bodies = dict[str, dict[str, Any]]
WITHIN_S = 400.0


def line(number: int, text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 12, "temperature": 0}
    return {"custom_id": f"q{number}", "method": "POST", "url": CHAT, "body": body}


def run_batch(client: OpenAI, file: str) -> Batch:
    return client.batches.create(input_file_id=file, endpoint=CHAT, completion_window="24h")


def hosts_of(process: int) -> list[psutil.Process]:
    """Returns the processes of vLLM's engine cores."""
    children = psutil.Process(process).children(recursive=True)
    return [c for c in children if "EngineCore" in c.name()]


def completed(client: OpenAI, batch: Batch) -> Batch:
    until(lambda: client.batches.retrieve(batch.id).status == "completed", within_s=WITHIN_S)
    return client.batches.retrieve(batch.id)


def answers(client: OpenAI, batch: Batch) -> Bodies:
    assert batch.output_file_id is not None
    return bodies_by_id(client.files.content(batch.output_file_id).text)


LINES = [line(i, q) for i, q in enumerate(QUESTIONS)]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Bodies:
    """What vLLM's own command answers; it ends before the fabric loads the same model."""
    folder = tmp_path_factory.mktemp("run-batch")
    return vllm_run_batch(builtin_model(folder), LINES, folder)


def test_a_batch_survives_its_engine_equals_run_batch_and_costs_nothing_again(
    theirs: Bodies, fabric: SharedFabric, tmp_path: Path
) -> None:
    known = owner(fabric.folder)
    client = OpenAI(base_url=f"{known['url']}/openai/v1", api_key=known["token"])
    text = "".join(json.dumps(one) + "\n" for one in LINES)
    file = client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
    batch = run_batch(client, file.id)
    until(lambda: hosts_of(fabric.up.process.pid), within_s=WITHIN_S)
    hosts_of(fabric.up.process.pid)[0].send_signal(signal.SIGKILL)
    done = completed(client, batch)
    assert done.request_counts is not None
    assert (done.request_counts.completed, done.request_counts.failed) == (len(QUESTIONS), 0)
    found = answers(client, done)
    assert found.keys() == {f"q{i}" for i in range(len(QUESTIONS))}
    assert said(found) == said(theirs)
    again = completed(client, run_batch(client, file.id))
    assert said(answers(client, again)) == said(found)
    run = fabric.call("GET", f"/v1/runs/{again.id.replace('_', '-')}")
    assert (run.get("executed", 0), run.get("paid_nanousd", 0)) == (0, 0)
    requests = tmp_path / "requests.jsonl"
    requests.write_text(text)
    (plan,) = answer("plan", requests, cwd=fabric.folder)
    assert (plan["requests"], plan["forecast"]["hits"]) == (
        len(QUESTIONS),
        plan["forecast"]["actions"],
    )
    shown = fmesh("plan", requests, cwd=fabric.folder)
    assert "24h" in shown.stdout, shown.stderr
    uid = done.id.replace("_", "-")
    shown = fmesh("outputs", uid, "--download", str(tmp_path), "--partial", cwd=fabric.folder)
    assert shown.returncode == 0, shown.stderr
    assert len((tmp_path / "responses.jsonl").read_text().splitlines()) == len(QUESTIONS)
