"""A batch of OpenAI's requests whose engine and whose leader are killed: every line once."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tests.flowmesh_cli.calling import end_workers, owner, started, until
from tests.flowmesh_cli.test_openai_batch import CHAT, hosts_of
from tests.flowmesh_worker import hub
from tests.vllm_run_batch import bodies_by_id, said, vllm_run_batch

pytestmark = [pytest.mark.slow, pytest.mark.model]

MODEL = "hf://org/tiny"
LINES, SHORT = 160, 96
"""The first lines are answered with few tokens, so that some are published early."""


def line(number: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"the fox {number}"}]
    most = 2 if number < SHORT else 300
    body = {"model": MODEL, "messages": messages, "max_tokens": most, "temperature": 0}
    return {"custom_id": f"q{number}", "method": "POST", "url": CHAT, "body": body}


@pytest.fixture
def folder(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to serve, and a hub that has the tiny model."""
    files = {path.name: path.read_bytes() for path in tiny_model.iterdir()}
    monkeypatch.setitem(hub.REPOSITORIES, "org/tiny", {hub.commit("0"): files})
    with hub.in_thread() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("FLOWMESH_IMPORT_ALLOW", "127.0.0.1/32")
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        yield tmp_path
        end_workers(tmp_path)


def client_of(folder: Path) -> OpenAI:
    known = owner(folder)
    return OpenAI(base_url=f"{known['url']}/openai/v1", api_key=known["token"])


def test_a_batch_whose_engine_and_leader_are_killed_has_every_line_once(
    folder: Path, tiny_model: Path
) -> None:
    lines = [line(number) for number in range(LINES)]
    text = "".join(json.dumps(one) + "\n" for one in lines)

    def completed(client: OpenAI) -> int:
        found = client.batches.retrieve(batch.id)
        assert found.status != "failed", found.errors
        return 0 if found.request_counts is None else found.request_counts.completed

    with started("up", cwd=folder) as up:
        up.until("Ctrl-C stops")
        with client_of(folder) as client:
            file = client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
            batch = client.batches.create(
                input_file_id=file.id, endpoint=CHAT, completion_window="24h"
            )
            until(lambda: completed(client) > 0)
            engine = hosts_of(up.process.pid)[0]
            engine.send_signal(signal.SIGKILL)
            until(lambda: any(host.pid != engine.pid for host in hosts_of(up.process.pid)))
            assert completed(client) < LINES
        up.kill()
    with started("up", cwd=folder) as up:
        up.until("Ctrl-C stops")
        with client_of(folder) as client:
            until(lambda: client.batches.retrieve(batch.id).status == "completed")
            done = client.batches.retrieve(batch.id)
            assert done.error_file_id is None
            assert done.output_file_id is not None
            ours = bodies_by_id(client.files.content(done.output_file_id).text)
        up.process.terminate()
        assert up.end() == 0, up.said
    assert ours.keys() == {one["custom_id"] for one in lines}
    assert said(ours) == said(vllm_run_batch(tiny_model, lines, folder))
