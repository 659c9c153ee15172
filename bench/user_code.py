"""Measures what hostile user code takes before its call is ended, with and without a control group.

Three attacks of ``tests/attacks/``: many processes that together use more than the call may, a fork
bomb, and an answer of gigabytes. Run it with ``make bench-user-code``.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import psutil
from results import ROOT, Result, Table

sys.path[:0] = [str(ROOT)]

from tests.attacks import test_36_fork_bomb as fork_bomb  # noqa: E402 - found on the path set above
from tests.attacks import test_37_many_processes_together as many  # noqa: E402 - as above
from tests.attacks import test_38_flood_of_the_answer as flood  # noqa: E402 - as above
from tests.attacks.code_calls import call, observed  # noqa: E402 - as above

from flowmesh_core.errors import AttemptError  # noqa: E402 - as above
from flowmesh_worker.engines.code import processes  # noqa: E402 - as above

MIB = 1 << 20
ROUNDS = 3


async def together(folder: Path) -> tuple[float, float]:
    """Returns MiB beyond the limit, interpreter included, and seconds for which it was exceeded."""
    allowed_mib = many.MEMORY_MIB + many.INTERPRETER_AND_FILES_MIB
    async with observed(allowed_mib) as usage:
        try:
            await call(folder, many.MANY, memory_mib=many.MEMORY_MIB)
        except AttemptError:
            return max(0.0, usage.mib - allowed_mib), usage.seconds
    raise SystemExit("the code with many processes was not ended")


async def bomb(folder: Path) -> int:
    """Returns how many processes a fork bomb could start, each of which stays."""
    answer = await call(folder, fork_bomb.BOMB, memory_mib=256, timeout_s=120)
    return int(str(answer.rows[0]["count"]))


async def growth_mib(folder: Path, code: str, memory_mib: int) -> float:
    """Returns by how much the process that reads an answer grew at its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # noqa: ASYNC240 - no file
    before = psutil.Process().memory_info().rss
    try:
        await call(folder, code, memory_mib=memory_mib, timeout_s=120)
    except AttemptError:
        lines = Path("/proc/self/status").read_text().splitlines()  # noqa: ASYNC240 - no file
        peak_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        return max(0.0, (peak_kib * 1024 - before) / MIB)
    raise SystemExit("an answer of gigabytes was accepted")


async def measure(folder: Path) -> list[list[str]]:
    """Returns the rows of the table."""
    rows, groups = [], processes.machine_groups
    ways = [
        ("with a group", groups, 0.0, 1.0),
        ("without one", lambda: "the benchmark has none", 256.0, 3.0),
    ]
    for way, found, mib_max, s_max in ways:
        if isinstance(found(), str) and way == "with a group":
            print(f"no groups here: {found()}", file=sys.stderr)
            continue
        processes.machine_groups = found  # type: ignore[assignment]
        pairs = [await together(folder / f"{way}-{n}") for n in range(ROUNDS)]
        mib, seconds = (max(values) for values in zip(*pairs, strict=True))
        figure = f"{mib:.0f} MiB beyond the limit, for {seconds:.2f} s"
        what = f"20 processes of 100 MiB at 128 MiB, {way}"
        rows.append([what, figure, f"{mib_max:.0f} MiB, {s_max:.0f} s"])
    processes.machine_groups = groups
    rows.append(["fork bomb", f"{await bomb(folder / 'bomb')} processes", "64"])
    for name, code, memory_mib in (("1.5 GB", flood.FLOOD, 256), ("300 MiB", flood.LARGE, 1_024)):
        grown = await growth_mib(folder / f"flood-{name}", code, memory_mib)
        rows.append([f"an answer of {name}: growth of its reader", f"{grown:.0f} MiB", "64 MiB"])
    return rows


def main() -> None:
    """Prints and saves the table; with ``--draft`` only prints it."""
    result = Result("user-code")
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-", dir="/tmp") as folder:
        os.chmod(folder, 0o711)
        rows = asyncio.run(measure(Path(folder)))
    title = f"Hostile user code, the worst of {ROUNDS}"
    result.tables = [Table(title, ["attack", "measured", "bound"], rows)]
    result.save(keep="--draft" not in sys.argv[1:])


if __name__ == "__main__":
    main()
