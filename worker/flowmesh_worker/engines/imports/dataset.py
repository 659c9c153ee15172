"""The engine ``dataset.import``: an external file of rows, or all its parts, as a data set."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowmesh_core.catalog.builtin.importing import STORED
from flowmesh_core.catalog.hub_addresses import SCHEME, HubAddress
from flowmesh_core.errors import IdentityError
from flowmesh_worker.engine_api import (
    BlobInput,
    HostSettings,
    Progress,
    Result,
    Rows,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.egress.addresses import AddressPolicy
from flowmesh_worker.engines.engine_base import EngineBase
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.imports.download import Downloader
from flowmesh_worker.engines.imports.hub_listing import fetch_listing, part_of
from flowmesh_worker.engines.imports.hub_splits import choose_part
from flowmesh_worker.engines.imports.row_selection import RowSelection
from flowmesh_worker.engines.imports.sources import (
    HUB_REMEDIES,
    FileSource,
    find_source,
    hub_address,
    hub_file,
    require_hub,
)

_BYTES_MIN = 64 << 20
_ROWS_PER_BYTE = 4
"""Rows in Python use about this many times the bytes of their file."""
_DECODED_FACTOR = 16
"""A Parquet file may always decode to this many times its size."""


class DatasetImport(EngineBase):
    """The engine ``dataset.import``; see :class:`flowmesh_worker.engine_api.Engine`."""

    capacity = 2

    def __init__(self) -> None:
        """Reads the allowed networks from the environment."""
        self._rule = AddressPolicy.from_environment()
        self._bound = _BYTES_MIN
        self._download = Downloader(self._rule, self._bound)
        self._memory_bytes = 0

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Derives the limit on file sizes from the instance's memory limit."""
        self._bound = max((settings.memory_mib << 20) // _ROWS_PER_BYTE, _BYTES_MIN)
        self._download = Downloader(self._rule, self._bound)
        self._memory_bytes = settings.memory_mib << 20

    async def run(self, work: Work, progress: Progress) -> Result:
        """Fetches ``uri`` at the pinned revision and parses it by its ``format``."""
        uri = str(work.params["uri"])
        selection = RowSelection.from_params(work.params)
        if uri == STORED:
            return await _of_store(work, selection)
        pin = _pin_of(work)
        revision = str(work.params.get("revision") or "") or str(pin.get("revision", ""))
        if uri.startswith(SCHEME):
            return await self._of_hub(uri, revision, pin, selection, work, progress)
        source = find_source(uri, work.secrets)
        if_match = revision if revision.startswith('"') else ""
        rows, size = await self._fetched(source, selection, work, progress, if_match=if_match)
        return Result({"rows": Rows(rows)}, Usage(units=size))

    async def _of_hub(
        self,
        uri: str,
        revision: str,
        pin: Mapping[str, Any],
        selection: RowSelection,
        work: Work,
        progress: Progress,
    ) -> Result:
        address = hub_address(uri)
        require_hub(uri)
        if revision:
            address = replace(address, revision=revision)
        parts, total = [], 0
        for file in await self._files(address, pin, work):
            source = hub_file(file, work.secrets)
            rows, size = await self._fetched(
                source, selection, work, progress, before=total, remedies=HUB_REMEDIES
            )
            total += size
            if total > self._bound:
                raise bad_input(
                    f"{address.unpinned} is larger than {self._bound >> 20} MiB",
                    "name one of its files, take fewer rows with limit, or raise resources.memory"
                    " of the import",
                )
            parts.append(rows)
            selection = selection.after(len(rows))
            if selection.is_done:
                break
        joined = parts[0] if len(parts) == 1 else await asyncio.to_thread(_joined, parts, address)
        return Result({"rows": Rows(joined)}, Usage(units=total))

    async def _files(
        self, address: HubAddress, pin: Mapping[str, Any], work: Work
    ) -> list[HubAddress]:
        """Returns the files that hold the rows, in order."""
        if address.file:
            return [address]
        if "files" in pin:
            names = [str(name) for name, _ in pin["files"]]
        else:
            found = await fetch_listing(self._download, address, work.secrets)
            part = choose_part(address, found.sizes, found.card, *part_of(work.params))
            names = list(part.files)
        return [replace(address, file=name) for name in names]

    async def _fetched(
        self,
        source: FileSource,
        selection: RowSelection,
        work: Work,
        progress: Progress,
        *,
        before: int = 0,
        if_match: str = "",
        remedies: Mapping[int, str] | None = None,
    ) -> tuple[Any, int]:
        """Returns the rows of one file and its size; ``before`` is the size of earlier files."""
        found = await self._download.fetch(
            source.url,
            sign=source.sign,
            if_match=if_match,
            on_progress=lambda done, total: progress(before + done, before + total, "bytes"),
            remedies=remedies or {},
        )
        kind = str(work.params["format"])
        rows = await asyncio.to_thread(
            _read, source.name, kind, found.content, selection, self._memory_bytes
        )
        return rows, found.size_bytes


async def _of_store(work: Work, selection: RowSelection) -> Result:
    """Selects from rows that are in the store; nothing is fetched."""
    given = work.dataset("rows")

    def selected() -> Any:
        table = given.table()
        table = table if selection.rows_max is None else table.slice(0, selection.rows_max)
        return table if selection.columns is None else table.select(list(selection.columns))

    return Result({"rows": Rows(await asyncio.to_thread(selected))}, Usage(units=0))


def _read(name: str, kind: str, content: bytes, selection: RowSelection, memory_bytes: int) -> Any:
    from flowmesh_store.datasets import (  # noqa: PLC0415 - pyarrow is heavy
        read_rows_file,
        read_selected_rows,
    )

    most = max(memory_bytes // 2, _DECODED_FACTOR * len(content) + _BYTES_MIN)
    name = name if kind == "auto" else f"{name}.{kind}"
    try:
        if selection.is_all:
            return read_rows_file(name, content, decoded_bytes_max=most)
        return read_selected_rows(
            name, content, selection.rows_max, selection.columns, decoded_bytes_max=most
        )
    except IdentityError as error:
        raise bad_input(str(error), error.remedy) from error


def _joined(parts: Sequence[Any], address: HubAddress) -> Any:
    """Returns the rows of the parts, concatenated."""
    import pyarrow as pa  # noqa: PLC0415 - heavy

    if not all(isinstance(part, pa.Table) for part in parts):
        return [row for part in parts for row in part]
    try:
        return pa.concat_tables(parts)
    except pa.ArrowInvalid as error:
        raise bad_input(
            f"{address.unpinned}: its parts have different columns: {error}", "name one of them"
        ) from error


def _pin_of(work: Work) -> Mapping[str, Any]:
    """Returns what ``source.resolve`` found; nothing where the address fixes the content."""
    pin = work.inputs.get("pin")
    if not isinstance(pin, BlobInput):
        return {}
    try:
        found = json.loads(pin.read())
        found["revision"]
    except (ValueError, KeyError, TypeError):
        raise bad_input("the pin of the import was not written by source.resolve") from None
    return dict(found)
