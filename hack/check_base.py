"""Installs FlowMesh without extras into a scratch environment and holds it to its limits.

The base install is what a laptop user or an operator image starts from: it must stay small, need
no torch, and answer `fmesh --help` at once. Called by ``make check-base`` with the path of uv; it
needs nothing but the standard library.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_MB = 350
LIMIT_HELP_S = 0.5
RUNS = 7
HEAVY = ("torch", "vllm", "transformers", "trl", "kubernetes", "kopf")


def install(uv: str, venv: Path) -> None:
    """Makes the environment and installs the wheel of this checkout with its pins."""
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
    command = [uv, "pip", "install", "--system-certs", "--quiet"]
    command += ["--constraints", str(ROOT / "constraints" / "cpu.txt"), str(ROOT)]
    subprocess.run(command, check=True, env={**os.environ, "VIRTUAL_ENV": str(venv)})


def size_mb(venv: Path) -> float:
    """The space that the environment takes on disk, in MB of 2**20 bytes, as `du -m` counts."""
    files = (path.lstat() for path in venv.rglob("*"))
    return sum(stat.st_blocks * 512 for stat in files) / 2**20


def heavy_packages(venv: Path) -> list[str]:
    """Which packages are there that the base install must do without."""
    site = next(venv.glob("lib/python3.*/site-packages"))
    return [name for name in HEAVY if (site / name).exists()]


def help_s(venv: Path) -> float:
    """The median time of ``fmesh --help`` in seconds, after a first call that is not counted."""
    times: list[float] = []
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        subprocess.run(
            [str(venv / "bin" / "fmesh"), "--help"],
            check=True,
            stdout=subprocess.DEVNULL,
            env=environment,
            cwd=venv,
        )
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main(uv: str) -> int:
    """Installs, measures, prints, and returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="fmesh-base-") as scratch:
        venv = Path(scratch) / "venv"
        install(uv, venv)
        size, heavy, help_time = size_mb(venv), heavy_packages(venv), help_s(venv)
    print(f"base install: {size:.0f} MB (limit {LIMIT_MB})")
    print(f"packages it must not have: {', '.join(heavy) or 'none'}")
    print(f"fmesh --help: {help_time:.2f} s, median of {RUNS} (limit {LIMIT_HELP_S})")
    return 0 if size < LIMIT_MB and not heavy and help_time < LIMIT_HELP_S else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
