"""Writes the demo's questions: sums and products, identical on every machine.

``questions.jsonl`` is the beginning of ``more-questions.jsonl``: the common questions of two teams.
Data sets are cut into chunks by the content of their rows, so that common rows of large ones are
mostly common chunks. These are so short that a chunk is half a file: the questions are in an order
by which both files are cut before the first question that only the second one has
(``tests/flowmesh_cli/test_demo_data.py``).
"""

import json
import random
from pathlib import Path

HERE = Path(__file__).resolve().parent
FEW, MANY = 48, 80
MODULUS = 97
ORDER = 2
"""The first seed of an order by which every chunk of the first file is one of the second."""


def questions(count: int) -> list[dict[str, str]]:
    """So many distinct questions with their answers."""
    found = {}
    number = 1
    while len(found) < count:
        number = number * 5 % MODULUS
        left, right = number % 13 + 1, number // 7 + 1
        if number % 4:
            found[f"{left} + {right}"] = str(left + right)
        else:
            found[f"{left} * {right % 9 + 1}"] = str(left * (right % 9 + 1))
    return [{"question": question, "target": target} for question, target in found.items()]


def files(order: int = ORDER) -> dict[str, list[dict[str, str]]]:
    """The rows of both files, by their names."""
    everything = questions(MANY)
    common, others = everything[:FEW], everything[FEW:]
    shuffle = random.Random(order).shuffle
    shuffle(common)
    shuffle(others)
    return {"questions.jsonl": common, "more-questions.jsonl": [*common, *others]}


def main() -> None:
    """Writes both files."""
    for name, rows in files().items():
        (HERE / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
