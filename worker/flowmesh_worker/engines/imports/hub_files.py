"""Finds the files with rows in a data set's hub repository, if the address names no file.

It does not guess: files of several splits or configurations are not one data set, and
``hub_splits`` tells them apart.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from flowmesh_core.catalog.hub_addresses import ROW_ENDINGS, HubAddress
from flowmesh_worker.engines.errors import bad_input

_METADATA = frozenset(
    {"dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json"}
)
"""Files that describe the rows and contain none."""
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.[a-z]+)")


def require_rows_files(address: HubAddress, files: Iterable[str]) -> list[str]:
    """Returns the files that have rows, in order; at least one.

    Args:
        address: the repository, at a commit.
        files: the paths of all its files.

    Raises:
        AttemptError: kind ``bad-input``; there is no file with rows.
    """
    names = list(files)
    found = sorted(f for f in names if _holds_rows(f))
    if found:
        return found
    if any(f.endswith(".py") and "/" not in f for f in names):
        raise bad_input(
            f"{address.repository} is a loading script, which is not run",
            "use revision: refs/convert/parquet",
        )
    raise bad_input(
        f"{address.unpinned} has no file of rows ({', '.join(ROW_ENDINGS)})",
        "use another revision: the hub's own conversion is refs/convert/parquet",
    )


def are_parts_of_one(address: HubAddress, found: Sequence[str]) -> bool:
    """Whether files are a single one, or all parts of one.

    Args:
        address: the repository.
        found: files with rows, in order.

    Raises:
        AttemptError: kind ``bad-input``; parts are missing.
    """
    by_whole = _parts(found)
    if not by_whole and len(found) == 1:
        return True
    if len(by_whole) != 1 or len(next(iter(by_whole.values()))) != len(found):
        return False
    require_whole(address, found)
    return True


def require_whole(address: HubAddress, files: Iterable[str]) -> None:
    """Refuses files of which some are parts of one whose other parts are missing.

    Raises:
        AttemptError: kind ``bad-input``; names it.
    """
    for (stem, count, _), numbers in _parts(files).items():
        if sorted(numbers) != list(range(int(count))):
            raise bad_input(
                f"{address.unpinned} has {len(numbers)} of the {int(count)} parts of {stem}",
                "name one of its files, or another revision",
            )


def _parts(files: Iterable[str]) -> dict[tuple[str, str, str], list[int]]:
    """Returns the numbers of parts, by the file that they are parts of."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for file in files:
        if (m := _SHARD.fullmatch(file)) is not None:
            found.setdefault((m[1], m[3], m[4]), []).append(int(m[2]))
    return found


def _holds_rows(file: str) -> bool:
    path = PurePosixPath(file)
    hidden = any(part.startswith((".", "__")) for part in path.parts)
    return path.suffix.lower() in ROW_ENDINGS and path.name not in _METADATA and not hidden
