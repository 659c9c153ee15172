"""Installs FlowMesh without extras, and its client alone, and checks their limits.

Laptop users and the operator's image start from the base install: it must stay small, need no
torch, answer `fmesh --help` at once, run a data workflow, and refuse at once a workflow that needs
a model. The client must be small and fast to import. Called by ``make check-base`` with the path of
uv, after ``make dist``: the wheels are installed into scratch environments of every tested Python
that is here or that uv can fetch. It uses only the standard library.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13")
LIMIT_MB = 360
"""PyArrow has 165 of them, DuckDB 66, botocore 30; a library of models alone would add 1,000."""
LIMIT_HELP_S = 0.5
LIMIT_REFUSAL_S = 1.0
LIMIT_CLIENT_MB = 30
LIMIT_IMPORT_S = 0.15
REFUSED = 4
"""``ExitCode.REFUSED`` of the command line."""
RUNS = 7
DATA = ROOT / "examples" / "kubernetes" / "hello.yaml"
MODELS = ROOT / "examples" / "best-of-four.yaml"
HEAVY = ("torch", "vllm", "transformers", "trl", "kubernetes", "kopf")


def pyenv_folders() -> list[str]:
    """Returns the folders of the Pythons that pyenv has installed.

    Its shims, which are on the path in their place, run only the versions that are chosen in a
    folder, so that uv does not find the others.
    """
    try:
        root = subprocess.check_output(["pyenv", "root"], text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return []
    return [str(folder) for folder in sorted(Path(root).glob("versions/*/bin"))]


def has(uv: str, python: str) -> bool:
    """Whether a Python is here, or is here after uv has fetched it."""
    commands = ([uv, "python", "find", python], [uv, "python", "install", "--quiet", python])
    return any(
        subprocess.run(c, check=False, capture_output=True).returncode == 0 for c in commands
    )


def create(uv: str, venv: Path, python: str) -> None:
    """Creates an empty environment."""
    subprocess.run([uv, "venv", "--quiet", "--python", python, str(venv)], check=True)


def install(uv: str, venv: Path, *wheels: Path) -> None:
    """Installs wheels with the tested versions of what they need."""
    command = [uv, "pip", "install", "--system-certs", "--quiet"]
    command += ["--constraints", str(ROOT / "constraints" / "cpu.txt"), *map(str, wheels)]
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


def median_s(venv: Path, words: tuple[str, ...], code: int) -> float:
    """Returns the median CPU seconds of a command, which do not depend on the machine's load.

    The first call only fills caches.

    Raises:
        SystemExit: the command did not end with this exit code.
    """
    times: list[float] = []
    for _ in range(RUNS + 1):
        start = processor_s()
        done = fmesh(venv, *words)
        times.append(processor_s() - start)
        if done.returncode != code:
            sys.exit(f"fmesh {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return statistics.median(times[1:])


def import_s(venv: Path) -> float:
    """Returns the median CPU seconds of ``import flowmesh_sdk``, after a first import."""
    code = "import time; s = time.process_time(); import flowmesh_sdk;"
    code += "print(time.process_time() - s)"
    command = [str(venv / "bin" / "python"), "-I", "-c", code]
    times = [float(subprocess.check_output(command, cwd=venv)) for _ in range(RUNS + 1)]
    return statistics.median(times[1:])


def check_client(uv: str, venv: Path, python: str, wheel: Path) -> bool:
    """Installs the client alone, prints what it measures, and returns whether its limits hold."""
    create(uv, venv, python)
    before = size_mb(venv)
    install(uv, venv, wheel)
    size, took = size_mb(venv) - before, import_s(venv)
    print(f"{python} client: {size:.1f} MB (limit {LIMIT_CLIENT_MB})")
    print(f"{python} import flowmesh_sdk: {took:.3f} CPU seconds (limit {LIMIT_IMPORT_S})")
    return size < LIMIT_CLIENT_MB and took < LIMIT_IMPORT_S


def check_base(uv: str, venv: Path, python: str, *wheels: Path) -> bool:
    """Installs the base, prints what it measures, and returns whether its limits hold."""
    create(uv, venv, python)
    install(uv, venv, *wheels)
    size, heavy = size_mb(venv), heavy_packages(venv)
    help_time = median_s(venv, ("--help",), 0)
    refusal = median_s(venv, ("run", str(MODELS)), REFUSED)
    remedy = "[worker-" in fmesh(venv, "run", str(MODELS)).stderr
    ran = fmesh(venv, "run", str(DATA))
    print(f"{python} base install: {size:.0f} MB (limit {LIMIT_MB})")
    print(f"{python} packages that it must not have: {', '.join(heavy) or 'none'}")
    print(f"{python} fmesh --help: {help_time:.2f} CPU seconds, median (limit {LIMIT_HELP_S})")
    print(f"{python} a model refused: {refusal:.2f} CPU seconds, median (limit {LIMIT_REFUSAL_S})")
    print(f"{python} with the command that installs it: {'yes' if remedy else 'no'}")
    print(f"{python} {DATA.name}: {'ran' if ran.returncode == 0 else ran.stderr}")
    fast = help_time < LIMIT_HELP_S and refusal < LIMIT_REFUSAL_S
    return size < LIMIT_MB and not heavy and remedy and fast and ran.returncode == 0


def main(uv: str) -> int:
    """Checks each Python that is here, and returns the exit code."""
    os.environ["PATH"] = os.pathsep.join([*pyenv_folders(), os.environ["PATH"]])
    [client], [fabric] = DIST.glob("flowmesh_fabric_sdk-*.whl"), DIST.glob("flowmesh_fabric-*.whl")
    here = [python for python in PYTHONS if has(uv, python)]
    for python in PYTHONS:
        if python not in here:
            print(f"{python} is not here, and uv cannot fetch it: not checked")
    kept = []
    for python in here:
        with tempfile.TemporaryDirectory(prefix="fmesh-base-") as scratch:
            kept.append(check_client(uv, Path(scratch) / "client", python, client))
            kept.append(check_base(uv, Path(scratch) / "venv", python, client, fabric))
    held = bool(kept) and all(kept)
    print(f"limits {'held' if held else 'broken'} on {', '.join(here) or 'no Python'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
