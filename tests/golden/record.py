"""Records all goldens again: ``python -m tests.golden.record``, or ``make golden``."""

import sys

from tests.golden.recording import write_golden
from tests.golden.scenarios import SCENARIOS, record
from tests.golden.traces import SEEDS, example_names, write_traces


def main() -> None:
    """Writes every golden of the machine, and the traces of the simulator."""
    for name in SCENARIOS:
        lines = record(name)
        write_golden(name, lines)
        sys.stdout.write(f"{name}: {len(lines)} lines\n")
    write_traces()
    sys.stdout.write(f"traces: {len(example_names())} examples, {len(SEEDS)} seeds\n")


if __name__ == "__main__":
    main()
