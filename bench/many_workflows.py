"""Runs 20,000 workflows through one real ``fmesh up``: what it uses does not grow with them.

``make many-workflows`` runs all, ``ARGS="--workflows 4000"`` fewer. Old runs, and what nothing
needs, are deleted after seconds. At twenty moments memory, file descriptors and the size of the
state folder are measured. It ends with 1 where the second half of the workflows adds more of any of
them than its bound, or where a run does not succeed. ``--no-collection`` shows that
it can: the state folder then grows with each workflow.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from up_process import UpProcess, Usage, serving

import flowmesh_sdk as fm

THREADS = 16
MOMENTS = 20
EVERY_S, AGE_S = 4, 6
"""Between two collections; the age from which runs and blobs are deleted."""
SETTLED_S = 2.0 * (EVERY_S + AGE_S)
"""After so long a pause what was finished before it is deleted."""
_RUN_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Bound:
    """How much more of something the second half of the workflows may use than the first half.

    Attributes:
        read: its amount.
        unit: of the amount.
        per_workflow: the most that a workflow of the second half may add.
        noise: what may be added however many there are.
    """

    read: Callable[[Usage], float]
    unit: str
    per_workflow: float
    noise: float


BOUNDS: Mapping[str, Bound] = {
    "control plane": Bound(lambda used: used.control_bytes, " B", 1024.0, 8e6),
    "workers": Bound(lambda used: used.worker_bytes, " B", 1024.0, 8e6),
    "descriptors": Bound(lambda used: used.descriptors, "", 0.002, 4),
    # The log of results is rewritten once 4 MiB of it are dead.
    "state folder": Bound(lambda used: used.stored_bytes, " B", 256.0, 8e6),
}


def document(number: int) -> dict[str, Any]:
    """Returns a workflow of two steps, whose result no other one has."""
    first = {"name": "first", "uses": "test.noop", "with": {"value": f"a{number}"}}
    second = {
        "name": "second",
        "uses": "test.noop",
        "inputs": {"after": "first.metrics"},
        "with": {"value": f"b{number}"},
    }
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "one-of-many", "namespace": "team-a"},
        "spec": {"steps": [first, second], "outputs": {"value": "second.metrics"}},
    }


def work(client: fm.Client, numbers: range) -> int:
    """Runs workflows one after the other; returns how many of them did not succeed."""
    failed = 0
    for number in numbers:
        try:
            fm.load(document(number)).submit(client=client).wait(timeout_s=_RUN_TIMEOUT_S)
        except fm.FlowMeshError as e:
            failed += 1
            print(f"workflow {number}: {e}", flush=True)
    return failed


def added(amounts: Sequence[float]) -> float:
    """Returns by how much the highest amount of the second half is above that of the first."""
    half = len(amounts) // 2
    return max(amounts[half:]) - max(amounts[:half])


def measure(up: UpProcess, workflows: int, settled_s: float) -> tuple[list[tuple[int, Usage]], int]:
    """Runs the workflows in parts; measures after each, once it has been collected."""
    clients = [up.client() for _ in range(THREADS)]
    seen, failed, size = list[tuple[int, Usage]](), 0, workflows // MOMENTS
    with ThreadPoolExecutor(THREADS) as pool:
        for part in range(MOMENTS):
            began_s = time.monotonic()
            shares = [range(part * size + n, (part + 1) * size, THREADS) for n in range(THREADS)]
            failed += sum(pool.map(work, clients, shares))
            took_s = time.monotonic() - began_s
            time.sleep(settled_s)
            seen.append(((part + 1) * size, up.usage()))
            used = seen[-1][1]
            print(
                f"{seen[-1][0]:6} workflows ({size / took_s:.0f} a second): control plane "
                f"{used.control_bytes / 1e6:.1f} MB, workers {used.worker_bytes / 1e6:.1f} MB, "
                f"{used.descriptors} descriptors, state folder {used.stored_bytes / 1e6:.2f} MB "
                f"{ {k: round(v / 1e6, 2) for k, v in used.store_bytes.items()} }",
                flush=True,
            )
    return seen, failed


def main() -> int:
    """Runs the workflows, prints the figures, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workflows", type=int, default=20_000)
    parser.add_argument("--no-collection", action="store_true", help="sabotage: it has to fail")
    given = parser.parse_args()
    every = "0" if given.no_collection else f"{EVERY_S}s"
    age = f"{AGE_S}s"
    options = ["--collect-every", every, "--collect-grace", age, "--keep-runs", age]
    options += ["--keep-results", age]
    options += ["--store-max", "4Mi"]
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "state", *options) as up:
        seen, failed = measure(up, given.workflows, 0.0 if given.no_collection else SETTLED_S)
    return report(seen, failed)


def report(seen: Sequence[tuple[int, Usage]], failed: int) -> int:
    """Prints what was found; returns the exit code."""
    broken = [f"{failed} workflows did not succeed"] if failed else []
    figures = []
    workflows = seen[-1][0] - seen[len(seen) // 2 - 1][0]
    for name, bound in BOUNDS.items():
        more = added([bound.read(used) for _, used in seen])
        text = f"{name} {more:+.4g}{bound.unit} ({more / workflows:+.3g} a workflow)"
        figures.append(text)
        most = bound.per_workflow * workflows + bound.noise
        if more > most:
            broken.append(f"{text}: expected at most {most:+.4g}")
    for line in broken:
        print(line)
    print(
        f"many workflows: {seen[-1][0]}, {failed} failed; the second half adds: "
        f"{', '.join(figures)}; {len(broken)} broken bounds"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
