"""Records all goldens again: ``python -m tests.golden.record``, or ``make golden``."""

import sys

from tests.golden.agent.recording import write_goldens
from tests.golden.recording import write_golden
from tests.golden.scenarios import SCENARIOS, record
from tests.golden.traces import SEEDS, example_names, write_traces


def main() -> None:
    """Writes every golden of the machine and of the worker agent, and the simulator's traces."""
    for name in SCENARIOS:
        lines = record(name)
        write_golden(name, lines)
        sys.stdout.write(f"{name}: {len(lines)} lines\n")
    for name, count in write_goldens().items():
        sys.stdout.write(f"agent, {name}: {count} lines\n")
    write_traces()
    sys.stdout.write(f"traces: {len(example_names())} examples, {len(SEEDS)} seeds\n")


if __name__ == "__main__":
    main()
