"""Runs an engine in its own process, as an engine host does.

vLLM and transformers warn while they are imported, read the environment once and fork, which must
not happen in the test's process. The job is JSON on standard input, the answer JSON in the file
that
it names: a list for every batch, each entry one action's rows and usage, or its failure.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from blake3 import blake3

from flowmesh_core.errors import AttemptError
from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.engine_api import DatasetInput, HostSettings, Rows, Tree, TreeInput, Work
from flowmesh_worker.instances.memory_watch import used_mib


def dataset(rows: list[dict[str, Any]], folder: Path, name: str) -> DatasetInput:
    manifest, blobs = as_single_chunk(rows)
    files = []
    for i, chunk in enumerate(manifest.chunks):
        file = folder / f"{name}-{i}.parquet"
        file.write_bytes(blobs[chunk.blob])
        files.append(file)
    return DatasetInput(manifest, tuple(files))


async def act(engine: Any, action: dict[str, Any], folder: Path, name: str) -> dict[str, Any]:
    seen: list[tuple[float, float, str]] = []
    enough = asyncio.Event()

    def progress(done: float, total: float, unit: str) -> None:
        seen.append((done, total, unit))
        if done >= action.get("cancel_after_tokens", float("inf")):
            enough.set()

    inputs: dict[str, Any] = {}
    if "rows" in action:
        inputs["rows"] = dataset(action["rows"], folder, name)
    for port, rows in action.get("data", {}).items():
        inputs[port] = dataset(rows, folder, f"{name}-{port}")
    if "adapter" in action:
        inputs["adapter"] = TreeInput(
            blake3(action["adapter"].encode()).hexdigest(), Path(action["adapter"])
        )
    work = Work(
        action_id=name,
        attempt_id=name,
        params=action.get("params", {}),
        fields={},
        inputs=inputs,
        out_dir=folder / f"{name}-out",
        cache_salt=action.get("salt", ""),
        priority=action.get("priority", 0),
    )
    work.out_dir.mkdir()
    began = time.monotonic()
    try:
        task = asyncio.ensure_future(engine.run(work, progress))
        if "cancel_after_tokens" in action:
            await enough.wait()
            task.cancel()
        result = await task
    except AttemptError as e:
        f = e.failure
        return {"kind": f.kind.value, "message": f.message, "remedy": f.remedy, "detail": f.detail}
    except asyncio.CancelledError:
        return {"kind": "cancelled"}
    rows = result.outputs.get("rows", Rows([]))
    assert isinstance(rows, Rows)
    usage = result.usage
    others = {n: _plain(o) for n, o in result.outputs.items() if n != "rows"}
    return {
        **others,
        "rows": [dict(r) for r in rows.rows],
        "schema": {} if rows.schema is None else rows.schema.types(),
        "usage": [usage.units, usage.tokens_in, usage.tokens_out],
        "progress": seen[-1:],
        "began": began,
        "ended": time.monotonic(),
    }


def _plain(output: Any) -> Any:
    return str(output.path) if isinstance(output, Tree) else dict(output.values)


def most_sequences(engine: Any) -> int:
    """The sequences that vLLM decodes at once; 0 for other implementations."""
    running = getattr(getattr(engine, "_backend", None), "engine", None)
    config = getattr(running, "vllm_config", None)
    return 0 if config is None else int(config.scheduler_config.max_num_seqs)


def die(job: dict[str, Any], answer: dict[str, Any]) -> None:
    Path(job["answer"]).write_text(json.dumps(answer))
    os.kill(os.getpid(), signal.SIGKILL)


async def sleep_and_wake(engine: Any) -> dict[str, Any]:
    config = engine._backend.engine.vllm_config.cache_config
    before = used_mib(os.getpid())
    began = time.monotonic()
    await engine.sleep()
    sleep_s, asleep = time.monotonic() - began, used_mib(os.getpid())
    began = time.monotonic()
    await engine.wake()
    return {
        "awake_mib": before,
        "asleep_mib": asleep,
        "cache_mib": config.kv_cache_memory_bytes / 2**20,
        "said_mib": engine.asleep_mib,
        "sleep_s": sleep_s,
        "wake_s": time.monotonic() - began,
    }


async def main(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    module, _, cls = job["engine"].partition(":")
    engine = getattr(importlib.import_module(module), cls)()
    settings = HostSettings(
        devices=tuple(job.get("devices", ())),
        memory_mib=job.get("memory_mib", 4096),
        threads=2,
        signature_params=job.get("signature", {}),
        scratch=folder,
        mixed=frozenset(job.get("mixed", ())),
        sleeps="sleep_before" in job,
    )
    began = time.monotonic()
    try:
        await engine.load({"model": TreeInput("0" * 64, Path(job["model"]))}, settings)
    except AttemptError as e:
        return {"load": {"kind": e.failure.kind.value, "message": e.failure.message,
                         "remedy": e.failure.remedy}}  # fmt: skip
    loaded_s = time.monotonic() - began
    sequences = most_sequences(engine)
    batches = []
    slept: list[dict[str, Any]] = []
    for b, actions in enumerate(job["batches"]):
        if b in (job.get("kill_core_before"), job.get("die_before")):
            core = next(c for c in psutil.Process().children() if "EngineCore" in c.name())
            if job.get("die_before") == b:
                die(job, {"core": core.pid, "batches": batches})
            core.send_signal(signal.SIGKILL)
        if b in job.get("sleep_before", ()):
            slept.append(await sleep_and_wake(engine))
        tasks = [act(engine, a, folder, f"{b}-{i}") for i, a in enumerate(actions)]
        batches.append(await asyncio.gather(*tasks))
    await engine.close()
    answer = {"load_s": loaded_s, "capacity": engine.capacity, "batches": batches}
    return {**answer, "max_num_seqs": sequences, "slept": slept}


if __name__ == "__main__":
    given = json.load(sys.stdin)
    place = Path(given["folder"])
    if "jobs" in given:
        answer: Any = {"jobs": []}
        for number, one in enumerate(given["jobs"]):
            (place / str(number)).mkdir()
            answer["jobs"].append(asyncio.run(main(one, place / str(number))))
            given["jobs"][number + 1 :] = json.loads(
                json.dumps(given["jobs"][number + 1 :]).replace("FOLDER", str(place))
            )
    else:
        answer = asyncio.run(main(given, place))
    Path(given["answer"]).write_text(json.dumps(answer))
