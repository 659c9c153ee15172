"""Measures how long ``fmesh status`` takes beside an empty Python and the import of the client.

Each command is a process of its own, as in a shell: the time from its start to its end, and its
processor time, which other work on the machine changes less. The commands take turns. Run it with
``make bench-status``.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from results import Result, Table, spread
from up_process import serving

import flowmesh_sdk as fm

WORKFLOW = Path(__file__).parents[1] / "examples" / "kubernetes" / "hello.yaml"
_PYTHON = (sys.executable, "-I", "-c")
_FMESH = (sys.executable, "-m", "flowmesh_cli", "status")
COMMANDS: Mapping[str, Sequence[str]] = {
    "`python -c pass`": (*_PYTHON, "pass"),
    "`from flowmesh_sdk import connect, load`": (
        *_PYTHON,
        "from flowmesh_sdk import connect, load",
    ),
    "`fmesh status`": _FMESH,
    "`fmesh status RUN`": (*_FMESH, "hello"),
}


def measure(rounds: int, result: Result) -> None:
    """Adds the table of all commands, of a fabric that serves one ended run."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    with (
        tempfile.TemporaryDirectory(prefix="flowmesh-status-") as home,
        serving(Path(home) / "state") as up,
        up.client() as client,
    ):
        fm.load(WORKFLOW).run(client=client)
        for number in range(rounds + 1):
            for name, command in COMMANDS.items():
                found = spent_s(command, up.folder)
                if number:  # the first one fills caches
                    times[name].append(found)
    lines = []
    for name, found in times.items():
        elapsed, used = zip(*found, strict=True)
        result.figures[name] = {"elapsed_s": elapsed, "processor_s": used}
        lines.append([name, spread(elapsed), spread(used)])
    title = f"A command from start to end, {rounds} in turns: median (least to greatest)"
    result.tables.append(Table(title, ["command", "elapsed, s", "processor, s"], lines))


def spent_s(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Returns the seconds from a command's start to its end, and of the processor.

    Raises:
        CalledProcessError: it failed.
    """
    environment = {**os.environ, "FLOWMESH_STATE_DIR": str(folder)}
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    elapsed, after = time.perf_counter() - began, os.times()
    used = after.children_user + after.children_system
    return elapsed, used - before.children_user - before.children_system


def main() -> None:
    """Prints and saves the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="of each command")
    parser.add_argument("--draft", action="store_true", help="save nothing")
    arguments = parser.parse_args()
    result = Result("status")
    measure(arguments.rounds, result)
    result.save(keep=not arguments.draft)


if __name__ == "__main__":
    main()
