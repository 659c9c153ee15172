"""The page of examples lists every one, with the rows and the columns that its data has."""

import json
import re
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
PAGE = (EXAMPLES / "README.md").read_text()
FILE = re.compile(r"`([\w./-]+\.(?:yaml|jsonl))`")


def test_the_page_lists_every_example_and_no_other() -> None:
    rows = (line for line in PAGE.splitlines() if line.startswith("|"))
    listed = [name for row in rows for name in FILE.findall(row)]
    there = {
        str(p.relative_to(EXAMPLES)) for s in ("yaml", "jsonl") for p in EXAMPLES.rglob(f"*.{s}")
    }
    assert len(listed) == len(set(listed))
    assert set(listed) == there


def test_the_page_shows_the_number_of_rows_and_their_columns() -> None:
    for line in PAGE.splitlines():
        names = [n for n in FILE.findall(line) if n.endswith(".jsonl")]
        if not names:
            continue
        _, _, counts, columns, _ = line.split("|")
        for name, count in zip(names, counts.split(","), strict=True):
            rows = [json.loads(text) for text in (EXAMPLES / name).read_text().splitlines()]
            assert len(rows) == int(count)
            assert set(re.findall(r"`(\w+)`", columns)) == set(rows[0])
