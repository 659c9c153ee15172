"""The engine ``model.import``: fetches a model by its address and checks its files.

The address names fixed content (a built-in name, or a revision that ``source.resolve`` pinned), so
equal addresses give equal bytes and the result is shared. Heavy libraries are imported only by the
fetcher that needs them.
"""

import asyncio
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from flowmesh_worker.engine_api import (
    BlobInput,
    HostSettings,
    Progress,
    Result,
    Tree,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.engine_base import EngineBase
from flowmesh_worker.engines.environment import apply_environment, library_environment
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.models.bucket import fetch_bucket
from flowmesh_worker.engines.models.builtin import build
from flowmesh_worker.engines.models.hub import fetch_hub
from flowmesh_worker.engines.models.safe_files import check_model

_FORMS = "write builtin:NAME, hf://ORG/NAME[@REVISION] or s3://BUCKET/DIRECTORY"


class ModelImport(EngineBase):
    """The engine ``model.import``; see :class:`flowmesh_worker.engine_api.Engine`."""

    def __init__(self) -> None:
        self.capacity = 1

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Sets the environment of the libraries that a conversion may import."""
        variables = library_environment(settings, batch_invariant=True)
        # A fetch by hf:// needs the hub; conversions use a local file.
        del variables["HF_HUB_OFFLINE"]
        apply_environment(variables)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Fetches and checks one model."""
        uri, revision = str(work.params["uri"]), _revision(work)
        target = work.out_dir / "model"
        try:
            await _fetch(uri, revision, target, work)
            await asyncio.to_thread(check_model, target, uri)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
        progress(size, size, "bytes")
        return Result({"model": Tree(target)}, Usage(units=size))


async def _fetch(uri: str, revision: str, target: Path, work: Work) -> None:
    scheme, _, rest = uri.partition(":")
    match scheme:
        case "builtin":
            await asyncio.to_thread(build, rest, target)
        case "hf":
            await asyncio.to_thread(fetch_hub, rest.lstrip("/"), revision, target, work.secrets)
        case "s3":
            await fetch_bucket(uri, target, work.secrets)
        case "https":
            raise bad_input(
                f"{uri}: a model is a directory, and an https URL is one file",
                "upload the directory to a bucket (s3://) or a hub (hf://), or give it as ./DIR",
            )
        case _:
            raise bad_input(f"{uri!r} is not an address of a model", _FORMS)


def _revision(work: Work) -> str:
    given = str(work.params.get("revision") or "")
    pin = work.inputs.get("pin")
    if given or not isinstance(pin, BlobInput):
        return given
    try:
        return str(json.loads(pin.read()).get("revision") or "")
    except (OSError, ValueError, AttributeError) as e:
        raise bad_input("the pin of this model is not a JSON object", "resolve it again") from e
