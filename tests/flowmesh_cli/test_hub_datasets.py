"""A data set of a hub through the whole fabric: compiled, resolved, fetched and read."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import fmesh
from tests.flowmesh_worker.hub import TRAIN, Hub, running

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serves a fake hub in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    served = running()
    hub = asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("FLOWMESH_IMPORT_ALLOW", "127.0.0.1/32")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    try:
        yield hub
    finally:
        asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_run_reads_rows_from_a_hub_and_an_invalid_address_is_reported(
    hub: Hub, tmp_path: Path
) -> None:
    spec = {
        "inputs": {
            "file": {"dataset": f"hf://datasets/openai/gsm8k/{TRAIN}@main"},
            "parts": {"dataset": "hf://org/parts"},
        },
        "steps": [
            {
                "name": "both",
                "uses": "data.sql",
                "inputs": {"file": "inputs.file", "parts": "inputs.parts"},
                "with": {
                    "query": "select question from file union all select question from parts"
                    " order by 1"
                },
            }
        ],
        "outputs": {"both": "both.rows"},
    }
    flow = flows.write(tmp_path, "both", spec)
    done = fmesh("run", flow, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["outputs"]["both"]["rows"] == 8
    several = {**spec["inputs"], "file": {"dataset": "hf://datasets/openai/gsm8k"}}  # type: ignore[dict-item]
    flow = flows.write(tmp_path, "several", {**spec, "inputs": several})
    done = fmesh("run", flow, cwd=tmp_path)
    assert done.returncode == ExitCode.FAILED
    assert "failed in step inputs.file: bad-input" in done.stderr
    assert "try: name one: hf://datasets/openai/gsm8k/main/test-00000-of-00001" in done.stderr
