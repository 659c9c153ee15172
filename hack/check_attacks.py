"""Checks that docs/attacks.md lists every attack, and that every test named there exists.

The tests that docs/security.md names must exist too, and each rule there names one. A test is named
by its path in backticks, with ``::function`` where a line means one of them. Called by
``make check``.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = "docs/attacks.md"
RULES = "docs/security.md"
PAGES = (TABLE, RULES)
HEADS = ("| rule |", "| --- |")
FOLDERS = ("tests/attacks", "e2e/attacks")
TEST = re.compile(r"`((?:tests|e2e)/[^`\s:]+)(?:::([^`\s]+))?`")


def named_tests(text: str) -> Iterator[tuple[str, str, int]]:
    """Yields path, function (or nothing) and line number of each test that a page names."""
    for number, line in enumerate(text.splitlines(), 1):
        for path, function in TEST.findall(line):
            yield path, function, number


def missing_tests(root: Path) -> Iterator[str]:
    """Yields a message for each test that a page names and that does not exist."""
    for page in PAGES:
        for path, function, line in named_tests((root / page).read_text(encoding="utf-8")):
            if not (root / path).exists():
                yield f"{page}:{line}: {path} does not exist: name the test that shows this"
            elif function and function not in functions(root / path):
                yield f"{page}:{line}: {path} has no function {function}"


def unlisted_attacks(root: Path) -> Iterator[str]:
    """Yields a message for each attack that the table does not list."""
    text = (root / TABLE).read_text(encoding="utf-8")
    listed = {path for path, _, _ in named_tests(text)}
    for folder in FOLDERS:
        for path in sorted((root / folder).glob("test_*.py")):
            name = path.relative_to(root).as_posix()
            if name not in listed:
                yield f"{TABLE}: {name} is missing: add a line that says what the attacker does"


def untested_rules(root: Path) -> Iterator[str]:
    """Yields a message for each rule that names no test."""
    for number, line in enumerate((root / RULES).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("| ") and not line.startswith(HEADS) and not TEST.search(line):
            yield f"{RULES}:{number}: this rule names no test: {line[:60]}"


def functions(path: Path) -> set[str]:
    """Returns the names of all functions and methods of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def main() -> int:
    """Prints the problems; returns 1 if there are any."""
    problems = [*missing_tests(ROOT), *unlisted_attacks(ROOT), *untested_rules(ROOT)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
