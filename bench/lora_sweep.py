"""Compares eight LoRA runs on one base through the fabric with eight scripts of plain TRL.

``make bench-lora_sweep``: in interleaved rounds, the same eight runs (four learning rates, two
ranks; everything else equal) go (1) as eight workflows at once to a fabric whose new worker has no
model and loads the base once, and (2) as eight scripts one after another, each of which imports its
libraries, loads the base and trains. The base is a local directory for the scripts; in the fabric
it is imported before, but not loaded. Both must reach the same losses.
"""

import argparse
import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabric import Bench
from generate import BUILTIN, prompts

RATES = (1e-4, 2e-4, 5e-4, 1e-3)
RANKS = (4, 8)
ENGINE = "train.sft"
MEMORY_MIB = 6144
LOSS_TOLERANCE = 1e-3
"""For differences of summation: the fabric's tokenisation and order are TRL's."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much each run trains."""

    steps: int
    batch: int
    seed: int = 7

    def texts(self) -> list[str]:
        """Returns the rows, enough for all steps without repetition."""
        return [f"{p} {i}" for i, p in enumerate(prompts(self.steps * self.batch))]


@dataclass(frozen=True, slots=True)
class Sweep:
    """One pass: seconds, the losses in the order of the runs, and how often a base was loaded."""

    seconds: float
    losses: list[float]
    loads: int


def print_progress(what: str) -> None:
    """Prints progress to standard error: a round takes minutes."""
    print(what, file=sys.stderr, flush=True)


def runs() -> list[tuple[float, int]]:
    """Returns learning rate and rank of each run."""
    return [(rate, rank) for rate in RATES for rank in RANKS]


def scripts(model: Path, size: Size, folder: Path) -> Sweep:
    """Runs the eight scripts in sequence: together they would share two cores."""
    began, losses = time.perf_counter(), []
    for number, (rate, rank) in enumerate(runs()):
        job = {
            "model": str(model),
            "texts": size.texts(),
            "out": str(folder / f"script-{number}"),
            "learning_rate": rate,
            "lora_r": rank,
            "lora_alpha": 2 * rank,
            "max_steps": size.steps,
            "batch": size.batch,
            "seed": size.seed,
        }
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("lora_sweep_script.py"))],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1"},
        )
        print_progress(f"script {number} ended after {time.perf_counter() - began:.1f} s")
        losses.append(float(json.loads(done.stdout.splitlines()[-1])["train_loss"]))
    return Sweep(time.perf_counter() - began, losses, len(losses))


async def fabric(model: Path | None, size: Size, folder: Path) -> Sweep:
    """Runs the eight workflows at once on a new worker; writes the base to ``model``."""
    bench = Bench(folder, workers=1, memory_mib=MEMORY_MIB)
    await bench.start()
    try:
        base = await bench.submit(_workflow("import", None, size))
        await _ended(bench, base)
        if model is not None:
            await bench.directory(base, "m", model)
        print_progress("the base is imported")
        began = time.perf_counter()
        uids = [await bench.submit(_workflow(f"run-{n}", r, size)) for n, r in enumerate(runs())]
        ends = asyncio.gather(*(_ended(bench, uid) for uid in uids))
        loads = 0
        seen: set[tuple[str, str]] = set()
        while not ends.done():
            now = bench.hosts(ENGINE)
            loads, seen = loads + len(now - seen), now
            await asyncio.sleep(0.02)
        await ends
        seconds = time.perf_counter() - began
        found = [await bench.metrics(uid, "metrics") for uid in uids]
    finally:
        await bench.stop()
    return Sweep(seconds, [float(m["train_loss"]) for m in found], loads)


async def _ended(bench: Bench, uid: str) -> None:
    status = await bench.ended(uid)
    if status.phase != "Succeeded":
        raise RuntimeError(f"{uid}: {status.phase}: {status.message}")


def _workflow(name: str, run: tuple[float, int] | None, size: Size) -> dict[str, Any]:
    """Returns one run of the sweep; without ``run``, only the import of the base."""
    base = {"base": {"model": BUILTIN.partition(":")[2]}}
    rate, rank = run or (0.0, 0)
    tune = {
        "name": "tune",
        "uses": ENGINE,
        "inputs": {"model": "inputs.base", "rows": "inputs.texts"},
        "with": {
            "text": "{{ text }}",
            "use_peft": True,
            "learning_rate": rate,
            "lora_r": rank,
            "lora_alpha": 2 * rank,
            "lora_dropout": 0,
            "lora_target_modules": ["q_proj", "v_proj"],
            "max_steps": size.steps,
            "per_device_train_batch_size": size.batch,
            "max_length": 256,
            "gradient_checkpointing": False,
            "seed": size.seed,
            "dtype": "float32",
        },
    }
    rows = {"texts": {"rows": [{"text": t} for t in size.texts()]}}
    spec: dict[str, Any] = {"inputs": base, "steps": [_nothing()], "outputs": {"m": "inputs.base"}}
    if run is not None:
        outputs = {"adapter": "tune.adapter", "metrics": "tune.metrics"}
        spec = {"inputs": base | rows, "steps": [tune], "outputs": outputs}
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": name, "namespace": "team"},
        "spec": spec,
    }


def _nothing() -> dict[str, Any]:
    return {"name": "nothing", "uses": "test.noop", "with": {"value": 0}}


async def _run(folder: Path, rounds: int, size: Size) -> dict[str, Any]:
    model = folder / "model"
    through, alone = [], []
    for number in range(rounds):
        place = folder / f"round-{number}"
        place.mkdir()
        through.append(await fabric(None if number else model, size, place))
        print_progress(f"round {number}: the fabric took {through[-1].seconds:.1f} s")
        alone.append(await asyncio.to_thread(scripts, model, size, place))
        print_progress(f"round {number}: the scripts took {alone[-1].seconds:.1f} s")
    if any(sweep.loads != 1 for sweep in through):
        raise RuntimeError(f"the base was loaded {[s.loads for s in through]} times, not once")
    pairs = [(a, b) for s, t in zip(through, alone, strict=True)
             for a, b in zip(s.losses, t.losses, strict=True)]  # fmt: skip
    ratios = [t.seconds / s.seconds for s, t in zip(through, alone, strict=True)]
    return {
        "runs": len(runs()),
        "steps": size.steps,
        "fabric_s": [round(s.seconds, 1) for s in through],
        "scripts_s": [round(t.seconds, 1) for t in alone],
        "base loads in the fabric": [s.loads for s in through],
        "scripts / fabric": round(statistics.median(ratios), 2),
        "same losses": all(math.isclose(a, b, abs_tol=LOSS_TOLERANCE) for a, b in pairs),
        "largest difference of losses": max(abs(a - b) for a, b in pairs),
    }


def main() -> None:
    """Prints seconds, loads and the ratio as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        size = Size(arguments.steps, arguments.batch)
        print(json.dumps(asyncio.run(_run(Path(folder), arguments.rounds, size)), indent=2))


if __name__ == "__main__":
    main()
