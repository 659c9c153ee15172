"""Records the goldens anew: ``python -m tests.golden.record``, or ``make golden``."""

import sys

from tests.golden.recording import write_golden
from tests.golden.scenarios import SCENARIOS, record


def main() -> None:
    """Writes every golden of the machine."""
    for name in SCENARIOS:
        lines = record(name)
        write_golden(name, lines)
        sys.stdout.write(f"{name}: {len(lines)} lines\n")


if __name__ == "__main__":
    main()
