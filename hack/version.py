"""Checks or writes the version of a release: ``python hack/version.py [VERSION]``.

Without a version it checks that fabric, client and chart have one version, and that this commit's
tag, where it has one, is that version with a ``v`` before it. ``make dist images chart`` calls it
first, so a tag publishes nothing of another version. With a version it writes that into each
place, and gives it the entries of the changelog that no release has.
"""

import datetime
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = (
    ("pyproject.toml", r'^version = "(.*?)"'),
    ("pyproject.toml", r'"flowmesh-fabric-sdk==(.*?)"'),
    ("sdk/pyproject.toml", r'^version = "(.*?)"'),
    ("charts/flowmesh/Chart.yaml", r"^version: (.*)$"),
    ("charts/flowmesh/Chart.yaml", r'^appVersion: "(.*?)"'),
)
"""File and pattern of each place that has the version."""
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_UNRELEASED = "## [Unreleased]\n"


def problems(root: Path, tags: Sequence[str]) -> list[str]:
    """Returns what contradicts what.

    Args:
        root: of the repository.
        tags: of the commit, those that begin with ``v``.
    """
    found = {}
    for file, pattern in PLACES:
        match = re.search(pattern, (root / file).read_text(), re.MULTILINE)
        found[f"{file} ({pattern})"] = match[1] if match else "none"
    if len(set(found.values())) != 1:
        return [f"{place} has version {version}" for place, version in found.items()]
    version = next(iter(found.values()))
    if tags and f"v{version}" not in tags:
        return [f"the tag of this commit is {', '.join(tags)}, and its version {version}"]
    return []


def write(root: Path, version: str, date: str) -> None:
    """Writes a version into each place, and a heading for it into the changelog."""
    for file, pattern in PLACES:
        path = root / file
        text = path.read_text()
        match = re.search(pattern, text, re.MULTILINE)
        assert match, (file, pattern)
        path.write_text(text[: match.start(1)] + version + text[match.end(1) :])
    changelog = root / "CHANGELOG.md"
    heading = f"{_UNRELEASED}\n## [{version}] - {date}\n"
    changelog.write_text(changelog.read_text().replace(_UNRELEASED, heading, 1))


def _tags() -> list[str]:
    """Returns this commit's tags; none outside of a repository."""
    command = ["git", "tag", "--points-at", "HEAD", "--list", "v*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split()


def main(arguments: Sequence[str]) -> int:
    """Checks or writes; returns the exit code."""
    if not arguments:
        found = problems(ROOT, _tags())
        for line in found:
            print(f"error: {line}; `make version TO=X.Y.Z` writes one", file=sys.stderr)
        return 1 if found else 0
    if not _VERSION.fullmatch(arguments[0]):
        print(f"error: {arguments[0]!r} is not a version X.Y.Z", file=sys.stderr)
        return 2
    write(ROOT, arguments[0], datetime.datetime.now(datetime.UTC).date().isoformat())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
