"""``dataset.import``: a file of rows from outside, as a data set."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

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
from flowmesh_worker.engines.imports.download import Downloader
from flowmesh_worker.engines.imports.sources import find_source, refused
from flowmesh_worker.engines.net.addresses import AddressRule

_BYTES_MIN = 64 << 20
_ROWS_PER_BYTE = 4
"""Rows in Python take about so many times the room of their file."""
_DECODED_FACTOR = 16
"""A file of Parquet may always become so many times its size."""


class DatasetImport:
    """Fetches and reads files of rows."""

    capacity = 2

    def __init__(self) -> None:
        """Reads an administrator's exceptions for addresses."""
        self._rule = AddressRule.from_environment()
        self._download = Downloader(self._rule, _BYTES_MIN)
        self._memory_bytes = 0

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Takes its bound on size from the memory it may use."""
        bound = (settings.memory_mib << 20) // _ROWS_PER_BYTE
        self._download = Downloader(self._rule, max(bound, _BYTES_MIN))
        self._memory_bytes = settings.memory_mib << 20

    async def run(self, work: Work, progress: Progress) -> Result:
        """Fetches ``uri`` at the pinned revision and reads it by its ``format``."""
        uri = str(work.params["uri"])
        revision = str(work.params.get("revision") or "") or _pinned(work)
        source = find_source(uri, work.secrets, revision)
        found = await self._download.fetch(
            source.url,
            sign=source.sign,
            if_match=revision if revision.startswith('"') else "",
            on_progress=lambda done, total: progress(done, total, "bytes"),
        )
        rows = await asyncio.to_thread(
            _read, source.name, str(work.params["format"]), found.content, self._memory_bytes
        )
        return Result({"rows": Rows(rows)}, Usage(units=found.size_bytes))

    async def close(self) -> None:
        """Frees nothing."""


def _read(name: str, kind: str, content: bytes, memory_bytes: int) -> Any:
    from flowmesh_store.datasets import read_rows_file  # noqa: PLC0415 - pyarrow is heavy

    most = max(memory_bytes // 2, _DECODED_FACTOR * len(content) + _BYTES_MIN)
    name = name if kind == "auto" else f"{name}.{kind}"
    try:
        return read_rows_file(name, content, decoded_bytes_max=most)
    except IdentityError as error:
        raise refused(str(error), error.remedy) from error


def _pinned(work: Work) -> str:
    pin = work.inputs.get("pin")
    if not isinstance(pin, BlobInput):
        return ""
    try:
        return str(json.loads(pin.read())["revision"])
    except (ValueError, KeyError, TypeError):
        raise refused("the pin of the import is not one that source.resolve wrote") from None
