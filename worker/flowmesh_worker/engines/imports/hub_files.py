"""Finds the files with rows in a data set's hub repository, if the address names no file.

It does not guess: files of several splits or configurations are not one data set.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath

from flowmesh_core.catalog.hub_addresses import ROW_ENDINGS, HubAddress
from flowmesh_worker.engines.errors import bad_input

_METADATA = frozenset(
    {"dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json"}
)
"""Files that describe the rows and contain none."""
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.[a-z]+)")
_SHOWN = 4


def files_of_rows(address: HubAddress, files: Iterable[str]) -> list[HubAddress]:
    """Returns the files to read in order: the only file with rows, or all its parts.

    Args:
        address: the repository, at a commit.
        files: the paths of all its files.

    Raises:
        AttemptError: kind ``bad-input``; there is no file with rows, or the choice is ambiguous.
    """
    found = sorted(f for f in files if _holds_rows(f))
    if not found:
        raise bad_input(
            f"{address.unpinned} has no file of rows ({', '.join(ROW_ENDINGS)})",
            "scripts that make rows are not run; for such a repository use the hub's conversion:"
            f" {replace(address, revision='refs/convert/parquet').uri}",
        )
    _require_parts(address, found)
    return [replace(address, file=f) for f in found]


def _holds_rows(file: str) -> bool:
    path = PurePosixPath(file)
    hidden = any(part.startswith((".", "__")) for part in path.parts)
    return path.suffix.lower() in ROW_ENDINGS and path.name not in _METADATA and not hidden


def _require_parts(address: HubAddress, found: list[str]) -> None:
    """Refuses files that are neither a single file nor all parts of one."""
    parts = [m for f in found if (m := _SHARD.fullmatch(f)) is not None]
    if not parts and len(found) == 1:
        return
    if len(parts) == len(found) and len({(m[1], m[3], m[4]) for m in parts}) == 1:
        count = int(parts[0][3])
        if [int(m[2]) for m in parts] == list(range(count)):
            return
        raise bad_input(
            f"{address.unpinned} has {len(found)} of the {count} parts of {parts[0][1]}",
            "name one of its files, or another revision",
        )
    shown = ", ".join(found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise bad_input(
        f"{address.unpinned} has {len(found)} files of rows, which are not parts of one: {shown}"
        f"{more}",
        f"name one: {replace(address, file=found[0], revision='').uri}",
    )
