"""Writes the demo's questions: sums and products, identical on every machine.

``questions.jsonl`` is the beginning of ``more-questions.jsonl``.
"""

import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
FEW, MANY = 48, 80
MODULUS = 97


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


def main() -> None:
    """Writes both files."""
    everything = questions(MANY)
    for name, rows in (("questions", everything[:FEW]), ("more-questions", everything)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (HERE / f"{name}.jsonl").write_text(text)


if __name__ == "__main__":
    main()
