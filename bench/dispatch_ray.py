"""Ray's half of ``bench/dispatch.py``: runs in Ray's own environment, imports nothing of ours.

Reads ``SHAPE COUNT`` a line, runs that graph of no-op tasks, and answers with the seconds it took.
"""

import sys
import time

import ray


@ray.remote
def noop(*_: object) -> None:
    """Does nothing, after what it is given."""


def flat(count: int) -> None:
    """Independent tasks."""
    ray.get([noop.remote() for _ in range(count)])


def chains(count: int, length: int = 100) -> None:
    """Chains of tasks, each after the one before it."""
    ends = []
    for _ in range(count // length):
        last = noop.remote()
        for _ in range(length - 1):
            last = noop.remote(last)
        ends.append(last)
    ray.get(ends)


def diamonds(count: int) -> None:
    """One task, then two, then one that joins them."""
    ends = []
    for _ in range(count // 4):
        top = noop.remote()
        ends.append(noop.remote(noop.remote(top), noop.remote(top)))
    ray.get(ends)


def fans(count: int, width: int = 100) -> None:
    """One task, then all others of its group after it."""
    ends = []
    for _ in range(count // width):
        top = noop.remote()
        ends += [noop.remote(top) for _ in range(width - 1)]
    ray.get(ends)


SHAPES = {"flat": flat, "chains": chains, "diamonds": diamonds, "fans": fans}


def main() -> None:
    """Serves until standard input ends."""
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    flat(1000)
    print("ready", ray.__version__, flush=True)
    for line in sys.stdin:
        shape, count = line.split()
        started = time.monotonic()
        SHAPES[shape](int(count))
        print(time.monotonic() - started, flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
