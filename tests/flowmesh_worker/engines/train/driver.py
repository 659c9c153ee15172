"""Runs a training engine in its own process, as an engine host does.

The job is JSON on standard input: hosts in order, each with its actions. The answer is JSON in the
file that it names: for every action its outputs with the digest of every file, or its failure. In
the test's process the libraries' warnings and imports would disturb other tests.
"""

import asyncio
import hashlib
import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.catalog.resolved_contract import metrics_of
from flowmesh_core.errors import AttemptError
from flowmesh_core.identity.coerce import effective_params
from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Metrics,
    Result,
    Rows,
    TreeInput,
    Work,
)


def dataset(rows: list[dict[str, Any]], folder: Path, name: str) -> DatasetInput:
    manifest, blobs = as_single_chunk(rows)
    files = []
    for i, chunk in enumerate(manifest.chunks):
        file = folder / f"{name}-{i}.parquet"
        file.write_bytes(blobs[chunk.blob])
        files.append(file)
    return DatasetInput(manifest, tuple(files))


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest()
        for f in sorted(folder.rglob("*"))
        if f.is_file()
    }


def described(outputs: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for port, value in outputs.items():
        if isinstance(value, Metrics):
            out[port] = dict(value.values)
        elif isinstance(value, Rows):
            assert value.schema is not None
            out[port] = list(value.rows)
            out[f"{port}_columns"] = value.schema.names
        else:
            out[port] = files_of(value.path)
            out[f"{port}_path"] = str(value.path)
    return out


def undeclared(contract: EngineContract, params: Mapping[str, Any], result: Result) -> list[str]:
    """The metrics that the result has and its contract does not declare for these parameters."""
    port = contract.output_port("metrics")
    reported = result.outputs["metrics"]
    assert port is not None
    assert isinstance(reported, Metrics)
    return sorted(reported.values.keys() - (metrics_of(port, params) or {}).keys())


def base_digest(engine: Any) -> str:
    shared = engine._base._shared
    if shared is None:
        return ""
    digest = hashlib.sha256()
    for name, tensor in shared.state_dict().items():
        digest.update(name.encode() + tensor.contiguous().view(-1).numpy().tobytes())
    kinds = [type(m).__name__ for m in shared.modules()]
    digest.update(json.dumps([kinds, sorted(vars(shared))]).encode())
    return digest.hexdigest()


def shares_its_weights(engine: Any) -> bool:
    """Whether a model for an adapter shares the memory of the loaded model's weights."""
    loaded = dict(engine._base._shared.named_parameters())
    own = engine._base.frozen(seed=0).named_parameters()
    return all(p.data_ptr() == loaded[n].data_ptr() for n, p in own if not n.startswith("score"))


async def act(engine: Any, job: dict[str, Any], number: int, folder: Path) -> dict[str, Any]:
    action = job["actions"][number]
    seen: list[tuple[float, float, str]] = []
    enough = asyncio.Event()

    def progress(done: float, total: float, unit: str) -> None:
        seen.append((done, total, unit))
        if done >= action.get("cancel_after", float("inf")):
            enough.set()

    contract = builtin_catalog().newest(job["uses"])
    assert contract is not None
    out_dir = folder / f"out-{number}"
    out_dir.mkdir(parents=True)
    kept: list[dict[str, Any]] = []

    def checkpoint(path: Path, done: float) -> None:
        goal = folder / f"kept-{number}-{int(done)}"
        path.rename(goal)
        kept.append({"done": done, "path": str(goal)})
        if action.get("stop") == "kept":
            work.stopping.set()

    work = Work(
        action_id=str(number),
        attempt_id=str(number),
        params=effective_params(contract, {**job.get("with", {}), **action.get("with", {})}),
        fields={},
        inputs={"rows": dataset(action.get("rows", job["rows"]), folder, str(number))},
        out_dir=out_dir,
        resume=TreeInput("1" * 64, Path(action["resume"])) if "resume" in action else None,
        checkpoint=checkpoint,
    )
    if action.get("stop") == "first":
        work.stopping.set()
    before = base_digest(engine)
    try:
        task = asyncio.ensure_future(engine.run(work, progress))
        if "cancel_after" in action:
            await enough.wait()
            task.cancel()
        result = await task
    except AttemptError as e:
        f = e.failure
        return {"kind": f.kind.value, "message": f.message, "remedy": f.remedy, "kept": kept}
    except asyncio.CancelledError:
        return {"kind": "cancelled", "progress": seen}
    return {
        **described(dict(result.outputs)),
        "undeclared": undeclared(contract, work.params, result),
        "out_dir": sorted(p.name for p in out_dir.iterdir()),
        "base": [before, base_digest(engine)],
        "usage": [result.usage.units, result.usage.tokens_in],
        "progress": seen,
        "kept": kept,
    }


async def host(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    module, _, cls = job["engine"].partition(":")
    engine = getattr(importlib.import_module(module), cls)()
    settings = HostSettings(
        devices=tuple(job.get("devices", ())),
        memory_mib=job.get("memory_mib", 4096),
        threads=job.get("threads", 2),
        signature_params=job.get("signature", {}),
        scratch=folder,
    )
    try:
        trees = {"model": job["model"], **job.get("components", {})}
        await engine.load({p: TreeInput("0" * 64, Path(t)) for p, t in trees.items()}, settings)
    except AttemptError as e:
        f = e.failure
        return {"load": {"kind": f.kind.value, "message": f.message, "remedy": f.remedy}}
    actions = [await act(engine, job, n, folder) for n in range(len(job["actions"]))]
    shares = engine._base._shared is not None and shares_its_weights(engine)
    await engine.close()
    return {"capacity": engine.capacity, "actions": actions, "shares": shares}


async def main(jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    return [await host(job, folder / str(number)) for number, job in enumerate(jobs)]


if __name__ == "__main__":
    given = json.load(sys.stdin)
    answer = asyncio.run(main(given["hosts"], Path(given["folder"])))
    Path(given["answer"]).write_text(json.dumps(answer))
