"""Runs every engine that can use a GPU once, through the whole fabric.

``make gpu-check``, on any machine with an NVIDIA GPU: each engine runs once on a small model. The
table compares its joules by the device's counter with power samples integrated over the same span,
and shows the peak of device memory. Loading is timed three times: fetched, from the local cache,
and already loaded. Two engines that do not fit the device together take turns (``switches``): each
sleeps while the other works. Then the same requests are answered in different company, which must
make no difference in batch-invariant mode (``batch_invariance``). Engines that cannot run here are
named with the reason. ``--on-cpu`` rehearses it without a GPU and says so; its joules are
estimates.
"""

import argparse
import importlib.util
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from batch_invariance import AnswerRows, Comparison, Row, compare, page

from flowmesh_worker.shape import find_devices, nvml

MODEL = "smollm2-135m-instruct"
ROWS = [
    {"q": f"{a} plus {b}?", "a": str(a + b), "wrong": str(a + b + 1)}
    for a in range(2, 6)
    for b in range(3, 7)
]
SAMPLE_S = 0.05
TURNS_SHARE = 0.6
"""Of the device's memory, for each of two engines that take turns."""
_TIMEOUT_S = 1200
_MIB = 1 << 20
PROMPT = "Q: {{ q }}\nA:"
LORA = {"use_peft": True, "max_steps": 3, "per_device_train_batch_size": 4, "max_length": 64}
PAIR = {"prompt": PROMPT, "chosen": " {{ a }}", "rejected": " {{ wrong }}"}


@dataclass(frozen=True, slots=True)
class Check:
    """One run of one engine.

    Attributes:
        name: its name in the table.
        steps: the workflow's steps; the last one is measured.
        needs: required libraries; without them the check is skipped.
    """

    name: str
    steps: list[dict[str, Any]]
    needs: tuple[str, ...] = ("torch", "transformers")


def checks(dtype: str) -> list[Check]:
    """Returns a check for every engine that runs on devices."""

    def step(name: str, engine: str, given: dict[str, Any], **inputs: str) -> dict[str, Any]:
        ports = {"model": "inputs.base", "rows": "inputs.rows", **inputs}
        return {"name": name, "uses": engine, "inputs": ports, "with": {**given, "dtype": dtype}}

    generate = {"prompt": PROMPT, "maxTokens": 16, "seed": 1}
    reward = step("reward", "train.reward", {**PAIR, **LORA, "use_peft": False})
    tuned = step("sft", "train.sft", {"prompt": PROMPT, "completion": " {{ a }}", **LORA})
    trains = ("torch", "trl", "peft")
    return [
        Check("llm.generate, vLLM", [step("go", "llm.generate", generate)], ("vllm",)),
        Check(
            "llm.generate, vLLM, an adapter",
            [tuned, step("go", "llm.generate", generate, adapter="sft.adapter")],
            ("vllm", *trains),
        ),
        Check(
            "llm.generate, transformers",
            [step("go", "llm.generate", {**generate, "implementation": "transformers"})],
        ),
        Check("llm.embed", [step("go", "llm.embed", {"text": "{{ q }}"})]),
        Check(
            "llm.score, log-probability",
            [
                step(
                    "go",
                    "llm.score",
                    {"method": "logprob", "prompt": PROMPT, "completion": " {{ a }}"},
                )
            ],
        ),
        Check(
            "llm.agent",
            [
                step(
                    "go",
                    "llm.agent",
                    {"prompt": "{{ q }}", "tools": ["calculator"], "maxTurns": 2, "maxTokens": 32},
                )
            ],
            ("vllm",),
        ),
        Check("train.sft, LoRA", [tuned], trains),
        Check(
            "train.sft, full",
            [step("sft", "train.sft", {**tuned["with"], "use_peft": False})],
            trains,
        ),
        Check("train.reward", [reward], trains),
        Check("train.dpo", [step("dpo", "train.dpo", {**PAIR, **LORA})], trains),
        Check(
            "train.grpo",
            [
                step(
                    "grpo",
                    "train.grpo",
                    {
                        "prompt": PROMPT,
                        "reward_funcs": [{"name": "number-equals", "target": "a"}],
                        "num_generations": 4,
                        "max_completion_length": 8,
                        **{k: v for k, v in LORA.items() if k != "max_length"},
                    },
                )
            ],
            trains,
        ),
        Check(
            "train.ppo",
            [
                reward,
                step(
                    "ppo",
                    "train.ppo",
                    {
                        "prompt": PROMPT,
                        "total_episodes": 16,
                        "response_length": 8,
                        "use_peft": True,
                        "per_device_train_batch_size": 8,
                    },
                    reward="reward.model",
                ),
            ],
            trains,
        ),
    ]


@dataclass(slots=True)
class Samples:
    """Power and memory of all devices over time, read by a thread."""

    at_s: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    used_mib: list[int] = field(default_factory=list)

    def joules(self, begin_s: float, end_s: float) -> float:
        """Returns the integral of the power between two times, by trapezoids."""
        points = [
            (t, w) for t, w in zip(self.at_s, self.watts, strict=True) if begin_s <= t <= end_s
        ]
        return sum(
            (b - a) * (first + second) / 2 for (a, first), (b, second) in itertools.pairwise(points)
        )

    def peak_mib(self, begin_s: float, end_s: float) -> int:
        """Returns the peak of used memory between two times."""
        inside = [m for t, m in zip(self.at_s, self.used_mib, strict=True) if begin_s <= t <= end_s]
        return max(inside, default=0)


@contextmanager
def sampling() -> Iterator[Samples]:
    """Samples the devices during the block; yields no samples without devices."""
    found, stop = Samples(), threading.Event()
    with nvml() as library:
        handles = []
        if library is not None:
            count = library.nvmlDeviceGetCount()
            handles = [library.nvmlDeviceGetHandleByIndex(i) for i in range(count)]

        def watch() -> None:
            while handles and not stop.wait(SAMPLE_S):
                found.at_s.append(time.time())
                found.watts.append(sum(library.nvmlDeviceGetPowerUsage(h) / 1e3 for h in handles))
                used = sum(int(library.nvmlDeviceGetMemoryInfo(h).used) for h in handles)
                found.used_mib.append(used // _MIB)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            stop.set()
            thread.join()


def _fmesh(folder: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "flowmesh_cli.main", *words, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise RuntimeError((done.stderr or done.stdout)[-2000:]) from None


def _succeeded(
    folder: Path,
    model: str,
    steps: Sequence[dict[str, Any]],
    rows: Sequence[dict[str, Any]],
    **more: Any,
) -> dict[str, Any]:
    """Runs steps, the last one whether it was run before or not; returns the run.

    Args:
        folder: of the fabric.
        model: a built-in name or a folder.
        steps: of the workflow.
        rows: its input ``rows``.
        more: further fields of its specification.

    Raises:
        RuntimeError: it failed.
    """
    last = steps[-1]
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "gpu-check", "namespace": "gpu-check"},
        "spec": {
            "inputs": {"base": {"model": model}, "rows": {"rows": list(rows)}},
            "steps": [*steps[:-1], {**last, "cache": {"reuse": "never"}}],
            **more,
        },
    }
    (folder / "check.yaml").write_text(json.dumps(document))
    (answer,) = _fmesh(folder, "run", "check.yaml").get("runs", [{}])
    if answer.get("phase") != "Succeeded":
        raise RuntimeError(f"{answer.get('message', 'failed')}; {answer.get('remedy', '')}")
    return dict(answer)


def _asking(folder: Path, model: str) -> AnswerRows:
    """Returns what asks the engine that the fabric of a folder has loaded."""

    def ask(engine: str, params: dict[str, Any], rows: Sequence[Row]) -> list[Row]:
        inputs = {"model": "inputs.base", "rows": "inputs.rows"}
        step = {"name": "go", "uses": engine, "inputs": inputs, "with": params}
        uid = _succeeded(folder, model, [step], rows, outputs={"rows": "go.rows"})["uid"]
        found = _fmesh(folder, "outputs", f"{uid}/rows", "--head", str(len(rows)))
        return list(found["rows"]["rows"])

    return ask


def compare_company(folder: Path, model: str, dtype: str) -> list[Comparison]:
    """Returns what the same requests get in different company, in two fresh engines."""
    ask = _asking(folder, model)

    def fresh(engine: str, params: dict[str, Any], rows: Sequence[Row]) -> list[Row]:
        serving.close()
        serving.enter_context(_serving(folder))
        return ask(engine, params, rows)

    with ExitStack() as serving:
        serving.enter_context(_serving(folder))
        return compare(dtype, ask, fresh)


def run(check: Check, folder: Path, model: str, samples: Samples) -> dict[str, Any]:
    """Runs one check and returns its measurements; raises RuntimeError if it fails."""
    answer = _succeeded(folder, model, check.steps, ROWS)
    name = check.steps[-1]["name"]
    (step,) = [s for s in answer["steps"] if s["path"] == name]
    receipt = _fmesh(folder, "receipt", answer["uid"])
    (line,) = [r for r in receipt["lines"] if r["step"] == name]
    begin_s, end_s = step["ended_s"] - line["run_s"], step["ended_s"]
    return {
        "seconds": round(line["run_s"], 2),
        "joules": round(line.get("joules", 0.0), 1),
        "estimated": line.get("joules_estimated", True),
        "joules, integrated": round(samples.joules(begin_s, end_s), 1),
        "peak MiB": samples.peak_mib(step["started_s"], end_s),
        "total s": round(step["ended_s"] - step["started_s"], 1),
    }


def loads(folder: Path, model: str, dtype: str, samples: Samples) -> dict[str, float]:
    """Returns the seconds of a small step with the model fetched, on disk, and loaded."""
    step = {
        "name": "go",
        "uses": "llm.generate",
        "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
        "with": {
            "prompt": PROMPT,
            "maxTokens": 1,
            "dtype": dtype,
            "implementation": "transformers",
        },
    }
    check = Check("load", [step])
    first = run(check, folder, model, samples)["total s"]
    again = run(check, folder, model, samples)["total s"]  # each `fmesh run` starts new hosts
    with _serving(folder):
        run(check, folder, model, samples)
        there = run(check, folder, model, samples)["total s"]
    return {"fetched": first, "from the local cache": again, "already loaded": there}


@dataclass(frozen=True, slots=True)
class Switch:
    """One step of a workflow on an engine for which another one made room, or that was there.

    Attributes:
        seconds: of the whole step; ``load_s`` the part until its engine took work.
        used_mib: device memory at its peak.
        same: whether its answers are those that its engine gave first.
    """

    seconds: float
    load_s: float
    used_mib: int
    same: bool = True


def switches(
    folder: Path, models: tuple[str, str], dtype: str, engine_mib: int, samples: Samples
) -> list[Switch]:
    """Asks two engines of ``engine_mib`` in turns, on a device that has room for one of them.

    The first two steps start the engines; in the others one falls asleep and the other wakes.
    """
    found: list[Switch] = []
    answers: dict[int, list[Row]] = {}
    with _serving(folder):
        for turn in range(6):
            which = turn % 2
            step = {
                "name": "go",
                "uses": "llm.generate",
                "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
                "with": {
                    "prompt": PROMPT,
                    "maxTokens": 16,
                    "seed": 1,
                    "dtype": dtype,
                    "engine": {"maxModelLen": 512 if which else 256},
                },
                "resources": {"memory": f"{engine_mib}Mi"},
            }
            answer = _succeeded(folder, models[which], [step], ROWS, outputs={"rows": "go.rows"})
            (status,) = [s for s in answer["steps"] if s["path"] == "go"]
            (line,) = [
                r for r in _fmesh(folder, "receipt", answer["uid"])["lines"] if r["step"] == "go"
            ]
            head = _fmesh(folder, "outputs", f"{answer['uid']}/rows", "--head", str(len(ROWS)))
            rows = list(head["rows"]["rows"])
            took_s = status["ended_s"] - status["started_s"]
            found.append(
                Switch(
                    seconds=round(took_s, 2),
                    load_s=round(took_s - line["run_s"], 2),
                    used_mib=samples.peak_mib(status["started_s"], status["ended_s"]),
                    same=answers.setdefault(which, rows) == rows,
                )
            )
    return found


def _switch_page(found: Sequence[Switch]) -> list[str]:
    lines = [
        "| step | until its engine took work, s | whole step, s | peak device MiB | same answers |"
    ]
    lines.append("| --- " * 5 + "|")
    names = ("first engine starts", "second starts, first sleeps")
    for number, one in enumerate(found):
        name = names[number] if number < len(names) else "one wakes, the other sleeps"
        same = "yes" if one.same else "NO"
        lines.append(f"| {name} | {one.load_s} | {one.seconds} | {one.used_mib} | {same} |")
    return lines


@contextmanager
def _serving(folder: Path) -> Iterator[None]:
    up = subprocess.Popen(
        [sys.executable, "-m", "flowmesh_cli.main", "up"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + _TIMEOUT_S
        while _down(folder) and time.monotonic() < deadline:
            time.sleep(0.2)
        yield
    finally:
        up.terminate()
        up.wait()


def _down(folder: Path) -> bool:
    answer = _fmesh(folder, "workers")  # an error object without a fabric, else a list
    return not isinstance(answer, list) or not answer


def report(where: str, model: str, other: str, dtype: str, engine_mib: int) -> str:
    """Runs everything; returns a page of Markdown.

    Args:
        where: the device, in words.
        model: a built-in name or a folder.
        other: another one, for the switch between two.
        dtype: to run in.
        engine_mib: memory of each of the two engines that take turns.
    """
    lines = [f"`{model}` in {dtype} on {where}.", ""]
    skipped: list[str] = []
    head = ("engine", "run, s", "joules by counter", "joules integrated", "peak device MiB")
    lines += [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    with tempfile.TemporaryDirectory() as name, sampling() as samples:
        folder = Path(name)
        if Path(model).is_dir():
            (folder / "model").symlink_to(Path(model).resolve())
            model = "./model"
        with _serving(folder):
            for check in checks(dtype):
                missing = [n for n in check.needs if importlib.util.find_spec(n) is None]
                if missing:
                    skipped.append(f"{check.name}: {', '.join(missing)} is not installed")
                    continue
                print(f"{check.name} ...", file=sys.stderr, flush=True)
                try:
                    found = run(check, folder, model, samples)
                except RuntimeError as e:
                    skipped.append(f"{check.name}: failed: {e}")
                    continue
                mark = " (estimate)" if found["estimated"] else ""
                cells = (found["seconds"], f"{found['joules']}{mark}", found["joules, integrated"])
                lines.append(
                    f"| {check.name} | {cells[0]} | {cells[1]} | {cells[2]} | {found['peak MiB']} |"
                )
        times = loads(folder, model, dtype, samples)
        try:
            turns = _switch_page(
                switches(folder, (model, other or model), dtype, engine_mib, samples)
            )
        except RuntimeError as e:
            skipped.append(f"two engines in turns: failed: {e}")
            turns = []
        try:
            company = page(compare_company(folder, model, dtype))
        except RuntimeError as e:
            skipped.append(f"the same requests in different company: failed: {e}")
            company = []
    lines += ["", "One token with transformers, loading included: "]
    lines[-1] += ", ".join(f"{k} {v} s" for k, v in times.items()) + "."
    lines += ["", f"Two engines of {engine_mib} MiB in turns:", "", *turns]
    lines += ["", *company]
    lines += ["", *(f"- skipped: {s}" for s in skipped)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Prints the page; returns 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=MODEL, help="a built-in name or a folder")
    parser.add_argument(
        "--other-model", default="", help="for the switch between two (default: the same again)"
    )
    parser.add_argument("--dtype", default="", help="default: bfloat16 on a GPU, float32 on a CPU")
    parser.add_argument("--on-cpu", action="store_true", help="rehearse without a GPU")
    arguments = parser.parse_args()
    devices = find_devices()
    if devices is None and not arguments.on_cpu:
        print(
            "error: no NVIDIA GPU answers here (NVML); nothing was checked\n"
            "       install the driver and nvidia-ml-py, or rehearse with --on-cpu",
            file=sys.stderr,
        )
        return 2
    where = f"{devices.count} x {devices.device_class}" if devices else "a CPU: a rehearsal"
    dtype = arguments.dtype or ("bfloat16" if devices else "float32")
    total_mib = devices.memory_mib if devices else int(psutil.virtual_memory().total * 0.8) // _MIB
    engine_mib = int(total_mib * TURNS_SHARE)
    print(report(where, arguments.model, arguments.other_model, dtype, engine_mib))
    return 0


if __name__ == "__main__":
    sys.exit(main())
