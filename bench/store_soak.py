"""Works on one real ``fmesh up`` with small bounds for hours: its store reaches a plateau.

``make store-soak`` runs for two hours, ``ARGS="--minutes 10"`` for ten minutes. Workflows make rows
that no other one makes; one workflow is submitted again and again, and must stay a hit; slow ones
make rows, wait for longer than several collections, and then read them. Every output is compared
with what it should be. It ends with 1 where an output is wrong or missing, where a run fails, where
the popular workflow runs again before its result has expired, or where the store grows after the
first third. ``--no-collection`` shows that it can: the store then grows, and the soak fails.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from e2e.harness.stability import Sample, lows, slope_per_s
from up_process import UpProcess, Usage, serving

import flowmesh_sdk as fm

MB = 1e6
EVERY_S, GRACE_S, RUNS_S = 15, 30, 45
RESULTS_S = 120
STORE_MAX_MIB = 12
ROWS = 2000
"""About 100 kB a workflow."""
RATE = 2.0
"""Workflows that make new rows, a second."""
PAUSE_S = 2.0
SLOW_S = 3 * GRACE_S
SAMPLE_S = 5.0
WARM = 1 / 3
GROWTH_MAX = 0.1
"""By how much of its mean the store may grow after the first third, by its slope."""
GROWTH_LEAST_MB = 4.0
"""Growth below it is none: a collection takes what is there at its moment."""
_RUN_TIMEOUT_S = 600.0


@dataclass
class Findings:
    """What the threads of the load saw."""

    right: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    executed: int = 0


def document(name: str, steps: Sequence[dict[str, Any]], output: str) -> dict[str, Any]:
    """Returns a workflow with one output."""
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"steps": list(steps), "outputs": {"rows": output}},
    }


def made(number: int) -> dict[str, Any]:
    """Returns a step that makes rows of its own for each number."""
    query = f"select range as n, md5(range || ':{number}') as h from range({ROWS})"
    return {"name": "made", "uses": "data.sql", "with": {"query": query}}


def fresh(number: int) -> dict[str, Any]:
    """Returns a workflow that makes rows."""
    return document("fresh", [made(number)], "made.rows")


def slow(number: int) -> dict[str, Any]:
    """Returns a workflow that reads rows long after it made them."""
    wait = {"name": "wait", "uses": "test.sleep", "with": {"seconds": SLOW_S, "value": str(number)}}
    read = {
        "name": "read",
        "uses": "data.sql",
        "after": ["wait"],
        "inputs": {"rows": "made.rows"},
        "with": {"query": "select n, h from rows"},
    }
    return document("slow", [made(number), wait, read], "read.rows")


def check(run: fm.Run, number: int) -> str:
    """Returns what is wrong with the output of a run; empty where nothing is."""
    rows = run.result(timeout_s=_RUN_TIMEOUT_S)["rows"]
    found = {row["n"]: row["h"] for row in rows}
    expected = {n: md5(f"{n}:{number}".encode()).hexdigest() for n in range(ROWS)}
    return "" if found == expected else f"{len(found)} rows of {ROWS}, or others"


class Load:
    """Submits workflows from threads until it is stopped."""

    def __init__(self, up: UpProcess, findings: Findings) -> None:
        self._up = up
        self._findings = findings
        self._stop = threading.Event()
        self._numbers = iter(range(1, sys.maxsize))
        self._lock = threading.Lock()
        kinds = (self._fresh, self._fresh, self._popular, self._slow)
        self._threads = [threading.Thread(target=self._loop, args=(kind,)) for kind in kinds]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Submits during a block."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()

    def _loop(self, work: Callable[[fm.Client], None]) -> None:
        client = self._up.client()
        while not self._stop.is_set():
            try:
                work(client)
            except fm.FlowMeshError as e:
                with self._lock:
                    self._findings.wrong.append(f"{work.__name__.strip('_')}: {e}")
                self._stop.wait(1.0)

    def _number(self) -> int:
        with self._lock:
            return next(self._numbers)

    def _fresh(self, client: fm.Client) -> None:
        began_s, number = time.monotonic(), self._number()
        self._note("fresh", check(fm.load(fresh(number)).submit(client=client), number))
        self._stop.wait(max(0.0, 2 / RATE - (time.monotonic() - began_s)))

    def _popular(self, client: fm.Client) -> None:
        run = fm.load(fresh(0)).submit(client=client)
        self._note("popular", check(run, 0))
        executed = run.receipt().executed
        with self._lock:
            self._findings.executed += executed
        self._stop.wait(PAUSE_S)

    def _slow(self, client: fm.Client) -> None:
        number = self._number()
        self._note("slow", check(fm.load(slow(number)).submit(client=client), number))

    def _note(self, kind: str, problem: str) -> None:
        with self._lock:
            if problem:
                self._findings.wrong.append(f"{kind}: {problem}")
            else:
                self._findings.right[kind] += 1


def growth(samples: Sequence[Sample], seconds: float) -> tuple[float, float]:
    """Returns by how much a size grew after the first third, by its slope, and its mean then."""
    late = [s for s in samples if s[0] > WARM * seconds]
    low = lows(late, 2.0 * EVERY_S)
    if len(low) < 2:
        raise SystemExit("too short: it takes at least five minutes")
    mean = sum(value for _, value in late) / len(late)
    return slope_per_s(low) * (1 - WARM) * seconds, mean


def main() -> int:
    """Soaks, prints the figures, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--no-collection", action="store_true", help="sabotage: it has to fail")
    given = parser.parse_args()
    every = "0" if given.no_collection else f"{EVERY_S}s"
    options = ["--collect-every", every, "--collect-grace", f"{GRACE_S}s"]
    options += ["--store-max", f"{STORE_MAX_MIB}Mi", "--keep-runs", f"{RUNS_S}s"]
    options += ["--keep-results", f"{RESULTS_S}s"]
    findings, seconds = Findings(), 60 * given.minutes
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "state", *options) as up,
        Load(up, findings).running(),
    ):
        seen = watch(up, seconds)
    return report(findings, seen, seconds)


def watch(up: UpProcess, seconds: float) -> list[tuple[float, Usage]]:
    """Measures at intervals; prints one line a minute."""
    began_s, seen, minute = time.monotonic(), list[tuple[float, Usage]](), 0
    while (at_s := time.monotonic() - began_s) < seconds:
        seen.append((at_s, up.usage()))
        if at_s >= 60 * minute:
            minute += 1
            used = seen[-1][1]
            parts = ", ".join(f"{name} {size / MB:.1f}" for name, size in used.store_bytes.items())
            print(
                f"{at_s:6.0f} s: store {used.stored_bytes / MB:.1f} MB ({parts}); control plane "
                f"{used.control_bytes / MB:.0f} MB, workers {used.worker_bytes / MB:.0f} MB, "
                f"{used.descriptors} descriptors",
                flush=True,
            )
        time.sleep(SAMPLE_S)
    return seen


def report(findings: Findings, seen: Sequence[tuple[float, Usage]], seconds: float) -> int:
    """Prints what was found; returns the exit code."""
    grown, mean = growth([(at_s, used.stored_bytes) for at_s, used in seen], seconds)
    broken = findings.wrong[:20]
    if not all(findings.right[kind] for kind in ("fresh", "popular", "slow")):
        broken.append(f"a kind of workflow never ended: {dict(findings.right)}")
    if findings.executed > 1 + seconds // RESULTS_S:
        broken.append(f"the popular workflow was executed {findings.executed} times")
    if grown > max(GROWTH_MAX * mean, GROWTH_LEAST_MB * MB):
        broken.append(f"the store grows: by {grown / MB:.1f} MB at a mean of {mean / MB:.1f} MB")
    for line in broken:
        print(line)
    memory, _ = growth([(at_s, used.control_bytes) for at_s, used in seen], seconds)
    most = max(used.stored_bytes for _, used in seen)
    print(
        f"store soak of {seconds:.0f} s: {sum(findings.right.values())} right "
        f"({findings.right['slow']} slow), {len(findings.wrong)} wrong; store {mean / MB:.1f} MB "
        f"(most {most / MB:.1f}), {grown / MB:+.1f} MB after the first third; control plane "
        f"{memory / MB:+.1f} MB; {len(broken)} broken bounds"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
