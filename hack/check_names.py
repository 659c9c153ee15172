"""Checks that docs/names.md lists exactly the names in the code; ``--write`` updates it.

The public names (metrics, conditions, reasons, causes, failure kinds, states, exit codes) are found
in the source without importing it: the members of every enum whose class name ends in one of
`FAMILIES`, and every string that looks like a metric. The meaning of a metric is its HELP text, the
documentation argument in the code. Of other names a meaning that the table already has is kept, and
a new one comes from the docstring or comment of the member. Called by ``make check``.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "names.md"
PACKAGES = (
    *("api", "documents", "core", "store", "control", "operator", "worker", "cli", "sim"),
    *("serving", "sdk"),
)
FAMILIES = (
    *("Attribute", "Kind", "State", "Status", "Phase", "Cause", "Condition", "Reason"),
    "ExitCode",
)
BEGIN, END = "<!-- names: begin -->", "<!-- names: end -->"
METRIC = re.compile(r"flowmesh_[a-z0-9_]+")
BARE_METRIC = re.compile(r"flowmesh_[a-z0-9]+(_[a-z0-9]+)+")
PACKAGE_NAMES = {f"flowmesh_{name}" for name in PACKAGES}
ROW = re.compile(r"^\| `([^`]+)` \| (.*) \|$")


@dataclass(frozen=True, slots=True)
class Name:
    """One name found in the code.

    Attributes:
        family: the section of the table, e.g. ``FailureKind`` or ``Metrics``.
        value: the public name.
        meaning: its documentation in the code; may be empty.
        where: file and line, for messages.
    """

    family: str
    value: str
    meaning: str
    where: str


def names_in_code() -> list[Name]:
    """Returns every name in the packages: enums by class name, members in order, then metrics."""
    enums: list[Name] = []
    metrics: dict[str, Name] = {}
    modules = list(_modules())
    constants = {name: value for _, tree, _ in modules for name, value in _metric_constants(tree)}
    for place, tree, lines in modules:
        enums.extend(_enum_names(tree, lines, place))
        for name in _metric_names(tree, place, constants):
            known = metrics.get(name.value)
            if known is None or (name.meaning and not known.meaning):
                metrics[name.value] = name
    distinct: dict[tuple[str, str], Name] = {}
    for name in enums:
        distinct.setdefault((name.family, name.value), name)
    ordered = sorted(distinct.values(), key=lambda name: name.family)
    return ordered + [metrics[value] for value in sorted(metrics)]


def _modules() -> Iterator[tuple[str, ast.Module, list[str]]]:
    """Yields the path, the tree and the lines of every module."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            yield str(path.relative_to(ROOT)), ast.parse(source, str(path)), source.splitlines()


def _metric_constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yields the constants of a module that are names of metrics."""
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
            and BARE_METRIC.fullmatch(str(node.value.value))
        ):
            yield node.targets[0].id, str(node.value.value)


def _enum_names(tree: ast.Module, lines: list[str], place: str) -> Iterator[Name]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or not node.name.endswith(FAMILIES):
            continue
        bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        if not bases & {"StrEnum", "IntEnum"}:
            continue
        for member, after in zip(node.body, [*node.body[1:], None], strict=True):
            value = _member_value(member)
            if value is not None:
                meaning = _docstring(after) or _comment(lines[member.lineno - 1])
                yield Name(node.name, value, meaning, f"{place}:{member.lineno}")


def _member_value(node: ast.stmt) -> str | None:
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)):
        return None
    target = node.targets[0]
    value = node.value.value
    if not isinstance(target, ast.Name) or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return f"{value} {target.id.lower().replace('_', '-')}"
    return value if isinstance(value, str) else None


def _docstring(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split()).rstrip(".")
    return ""


def _comment(line: str) -> str:
    _, found, comment = line.partition("  # ")
    return comment.strip() if found and not comment.startswith("noqa") else ""


def _metric_names(tree: ast.Module, place: str, constants: Mapping[str, str]) -> Iterator[Name]:
    documented: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1:
            first, second = node.args[0], node.args[1]
            if isinstance(second, ast.Constant) and isinstance(second.value, str):
                meaning = documented[id(first)] = second.value.rstrip(".")
                if isinstance(first, ast.Name) and first.id in constants:
                    yield Name("Metrics", constants[first.id], meaning, f"{place}:{node.lineno}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            value, meaning = node.value, documented.get(id(node), "")
            # Without a documentation argument, only names that can end in a unit count.
            pattern = METRIC if meaning else BARE_METRIC
            if pattern.fullmatch(value) and value not in PACKAGE_NAMES:
                yield Name("Metrics", value, meaning, f"{place}:{node.lineno}")


def table_rows(text: str) -> dict[tuple[str, str], str]:
    """Returns the rows between the markers: (family, name) to meaning.

    Raises:
        SystemExit: the markers are missing.
    """
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{TABLE}: the markers {BEGIN} and {END} are missing; put them back")
    rows: dict[tuple[str, str], str] = {}
    family = ""
    for line in text.partition(BEGIN)[2].partition(END)[0].splitlines():
        if line.startswith("## "):
            family = line[3:].strip()
        elif row := ROW.match(line):
            rows[family, row[1]] = row[2].strip()
    return rows


def render(names: list[Name], known: dict[tuple[str, str], str]) -> str:
    """Returns the generated part: a section per family, a row per name, with known meanings."""
    parts: list[str] = []
    family = ""
    for name in names:
        if name.family != family:
            family = name.family
            parts += ["", f"## {family}", "", "| name | meaning |", "| --- | --- |"]
        meaning = _help_of(name) or known.get((family, name.value)) or _escaped(name)
        parts.append(f"| `{name.value}` | {meaning} |")
    return "\n".join(parts) + "\n\n"


def _help_of(name: Name) -> str:
    """Returns the HELP text of a metric; empty for another name."""
    return _escaped(name) if name.family == "Metrics" else ""


def _escaped(name: Name) -> str:
    return name.meaning.replace("|", "\\|")


def problems(names: list[Name], rows: dict[tuple[str, str], str]) -> list[str]:
    """Returns the differences between code and table, one sentence each."""
    found = {(name.family, name.value): name for name in names}
    missing = [
        f"{name.where}: {family} `{value}` is not in docs/names.md"
        for (family, value), name in found.items()
        if (family, value) not in rows
    ]
    stale = [
        f"docs/names.md: {family} `{value}` is no longer in the code"
        for family, value in rows
        if (family, value) not in found
    ]
    without_meaning = [
        f"docs/names.md: {name.family} `{name.value}` has no meaning; write one in the table"
        for key, name in found.items()
        if rows.get(key) == ""
    ]
    differing = [
        f"docs/names.md: {name.value} has another meaning than its HELP text ({name.where})"
        for key, name in found.items()
        if rows.get(key) and _help_of(name) not in ("", rows[key])
    ]
    return missing + stale + without_meaning + differing


def main(arguments: list[str]) -> int:
    """Checks the table, or rewrites it with ``--write``; returns the exit code."""
    names = names_in_code()
    text = TABLE.read_text(encoding="utf-8")
    rows = table_rows(text)
    if "--write" in arguments:
        head, _, rest = text.partition(BEGIN)
        tail = rest.partition(END)[2]
        text = head + BEGIN + "\n" + render(names, rows) + END + tail
        TABLE.write_text(text, encoding="utf-8")
        rows = table_rows(text)
    found = problems(names, rows)
    for line in found:
        print(line, file=sys.stderr)
    if found and "--write" not in arguments:
        print("remedy: make generate, then fill in missing meanings", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
