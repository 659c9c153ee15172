"""Checks the words of names and docstrings: plain, of the field, one meaning each.

It checks every module of the packages: names of modules, classes, functions and constants must not
contain a word of ``DENIED``; a public class name may exist once; the first line of a docstring must
not contain a phrase of ``PHRASES``; ADRs have one form. Exceptions are listed in
``hack/words_allowed.txt``, which may only become shorter: an entry that nothing needs is an error.
Called by ``make check``; ``--write`` drops entries that are not needed any more.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    *("api", "documents", "core", "store", "control", "operator", "worker", "cli", "sim"),
    *("serving", "sdk"),
)
ALLOWED = ROOT / "hack" / "words_allowed.txt"

# fmt: off
DENIED = frozenset({
    "told", "tell", "telling", "said", "say", "held", "kept", "gone", "hands", "hand", "doors",
    "door", "nobody", "whoever", "somebody", "anyway", "again", "lately", "about", "news", "wish",
    "spot", "spots", "sites", "homes", "outlook", "seeker", "prospect", "prospects",
    "openings", "lane", "lanes", "rooms", "room",
})
# fmt: on
PHRASES = (" is no ", "nobody", "whoever", "somebody", "so many", " told ", "who is ", "house")
TWICE = frozenset({
    "Attempt", "CancelAttempt", "RunAttempt", "Tree", "Usage",
    "ApiError", "FabricUnavailableError", "FlowMeshError", "Rows", "Run",
})  # fmt: skip
"""Names that two packages give to one thing: an attempt as the control plane and as its worker see
it, what a worker is to do and the frame that its host gets, names of the plugin API, and those of
the Python client, which is a distribution of its own (``ApiError`` is also the answer of another
API, that of Kubernetes)."""
ADR_HEADINGS = ("## Context", "## Decision", "## Consequences", "## Alternatives")


def words(name: str) -> set[str]:
    """Returns the words of a name in snake or camel case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}


def definitions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields the names of classes, functions and module constants, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
    for statement in getattr(tree, "body", []):
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement.lineno


def docstring_lines(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields the first line of each docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text.splitlines()[0], getattr(node, "lineno", 1)


def problems() -> dict[str, str]:
    """Returns the violations: a stable key, and a sentence that names the place."""
    found: dict[str, str] = {}
    classes: dict[str, str] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            place = str(path.relative_to(ROOT))
            if "/build/" in place:
                continue  # what an installation from this folder has left
            tree = ast.parse(path.read_text(encoding="utf-8"), place)
            _names(place, tree, found)
            _prose(place, tree, found)
            for node in tree.body:
                if path.stem == "ports":
                    continue  # each user declares its own, so two may have one name
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    before = classes.setdefault(node.name, place)
                    if before != place and node.name not in TWICE and "flowmesh_api" not in before:
                        found[f"class {node.name}"] = f"{place}: {node.name} is also in {before}"
    found |= _decisions()
    return found


def _names(place: str, tree: ast.AST, found: dict[str, str]) -> None:
    for name, line in [(Path(place).stem, 1), *definitions(tree)]:
        for word in sorted(words(name) & DENIED):
            found[f"name {place} {name}"] = f"{place}:{line}: {name!r} has the word {word!r}"


def _prose(place: str, tree: ast.AST, found: dict[str, str]) -> None:
    for text, line in docstring_lines(tree):
        for phrase in PHRASES:
            if phrase in f" {text} ".lower().replace(" is no longer ", " "):
                found[f"prose {place} {text}"] = f"{place}:{line}: {phrase.strip()!r} in {text!r}"
    source = (ROOT / place).read_text(encoding="utf-8")
    if "DESIGN §" in source:
        found[f"cites {place}"] = f"{place}: cites a page that is not in the repository"


def _decisions() -> dict[str, str]:
    found = {}
    for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        missing = [heading for heading in ADR_HEADINGS if f"\n{heading}" not in text]
        if missing:
            found[f"adr {path.name}"] = f"docs/adr/{path.name}: no {', '.join(missing)}"
    return found


def main(arguments: list[str]) -> int:
    """Checks the names and docstrings; returns the exit code."""
    found = problems()
    allowed = ALLOWED.read_text(encoding="utf-8").splitlines() if ALLOWED.exists() else []
    if "--write" in arguments:
        standing = [key for key in allowed if key in found] if allowed else sorted(found)
        ALLOWED.write_text("".join(f"{key}\n" for key in standing), encoding="utf-8")
        return 0
    new = [text for key, text in found.items() if key not in set(allowed)]
    stale = [key for key in allowed if key not in found]
    for text in new:
        print(text, file=sys.stderr)
    for key in stale:
        print(f"hack/words_allowed.txt: {key!r} is not needed", file=sys.stderr)
    if new:
        print("remedy: use the words of docs/glossary.md", file=sys.stderr)
    if stale:
        print("remedy: python hack/check_words.py --write", file=sys.stderr)
    return 1 if new or stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
