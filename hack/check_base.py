"""Installs FlowMesh without extras into a scratch environment and checks its limits.

Laptop users and the operator's image start from the base install: it must stay small, need no
torch, answer `fmesh --help` at once, run a data workflow, and refuse at once a workflow that needs
a model. Called by ``make check-base`` with the path of uv (``PYTHON=python3.13`` for another
Python); it uses only the standard library.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_MB = 350
LIMIT_HELP_S = 0.5
LIMIT_REFUSAL_S = 1.0
REFUSED = 4
"""``ExitCode.REFUSED`` of the command line."""
RUNS = 7
DATA = ROOT / "examples" / "kubernetes" / "hello.yaml"
MODELS = ROOT / "examples" / "best-of-four.yaml"
HEAVY = ("torch", "vllm", "transformers", "trl", "kubernetes", "kopf")


def install(uv: str, venv: Path) -> None:
    """Creates the environment and installs this checkout with its pins."""
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
    command = [uv, "pip", "install", "--system-certs", "--quiet"]
    command += ["--constraints", str(ROOT / "constraints" / "cpu.txt"), str(ROOT)]
    subprocess.run(command, check=True, env={**os.environ, "VIRTUAL_ENV": str(venv)})


def size_mb(venv: Path) -> float:
    """Returns the environment's size on disk, in MB of 2**20 bytes, as `du -m` counts."""
    files = (path.lstat() for path in venv.rglob("*"))
    return sum(stat.st_blocks * 512 for stat in files) / 2**20


def heavy_packages(venv: Path) -> list[str]:
    """Returns the installed packages that the base install must not have."""
    site = next(venv.glob("lib/python3.*/site-packages"))
    return [name for name in HEAVY if (site / name).exists()]


def fmesh(venv: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Runs the installed ``fmesh``."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["FLOWMESH_STATE_DIR"] = str(venv / "state")
    command = [str(venv / "bin" / "fmesh"), *words]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, cwd=venv
    )


def processor_s() -> float:
    """Returns the CPU seconds of all child processes that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system


def median_s(
    venv: Path, words: tuple[str, ...], code: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Returns the median time of a command in seconds, after a warm-up call.

    Raises:
        SystemExit: the command did not end with this exit code.
    """
    times: list[float] = []
    for _ in range(RUNS + 1):
        start = clock()
        done = fmesh(venv, *words)
        times.append(clock() - start)
        if done.returncode != code:
            sys.exit(f"fmesh {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return statistics.median(times[1:])


def main(uv: str) -> int:
    """Installs, measures, prints, and returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="fmesh-base-") as scratch:
        venv = Path(scratch) / "venv"
        install(uv, venv)
        size, heavy = size_mb(venv), heavy_packages(venv)
        help_time = median_s(venv, ("--help",), 0)
        refusal = median_s(venv, ("run", str(MODELS)), REFUSED, processor_s)
        remedy = "[worker-" in fmesh(venv, "run", str(MODELS)).stderr
        median_s(venv, ("run", str(DATA)), 0)
    print(f"base install: {size:.0f} MB (limit {LIMIT_MB})")
    print(f"packages that it must not have: {', '.join(heavy) or 'none'}")
    print(f"fmesh --help: {help_time:.2f} s, median of {RUNS} (limit {LIMIT_HELP_S})")
    print(f"a model refused: {refusal:.2f} CPU seconds, median (limit {LIMIT_REFUSAL_S})")
    print(f"with the command that installs it: {'yes' if remedy else 'no'}; {DATA.name} ran")
    fast = help_time < LIMIT_HELP_S and refusal < LIMIT_REFUSAL_S
    return 0 if size < LIMIT_MB and not heavy and remedy and fast else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
