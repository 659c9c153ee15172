"""Fetches a model from a bucket: every safe file below a prefix."""

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowmesh_core.errors import AttemptError, Failure, FailureKind, StoreError
from flowmesh_store.model_files import is_pickle, is_safe
from flowmesh_worker.engines.egress.addresses import require_public
from flowmesh_worker.engines.egress.urls import parse_target
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.imports.sources import S3_SECRETS
from flowmesh_worker.secret_values import SecretValues

if TYPE_CHECKING:
    from flowmesh_store.s3.location import S3Location

_READ_BYTES = 8 << 20
_REGION = re.compile(r"[a-z0-9-]{0,64}")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_OF_USERS = frozenset(
    {*S3_SECRETS, "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}
)
"""What secrets may set; others name files and servers from which clients read credentials."""


async def fetch_bucket(uri: str, target: Path, secrets: SecretValues) -> None:
    """Downloads ``s3://bucket/directory``, without files that do not belong to a model.

    Args:
        uri: the address, with ``?endpoint=`` for servers other than Amazon's.
        target: a directory to create.
        secrets: the user's ``AWS_*`` variables; without them, those of the process are used.

    Raises:
        AttemptError: the address is malformed or has no model (bad input), or the bucket cannot be
            read (retryable).
    """
    from flowmesh_store.s3.errors import (  # noqa: PLC0415 - only this fetch needs the S3 clients
        blobs_error,
    )
    from flowmesh_store.s3.location import (  # noqa: PLC0415 - as above
        connect_blobs,
        parse_location,
    )

    try:
        location = parse_location(uri)
        if location.ca:  # a path on this machine
            raise bad_input(f"{uri}: ca is not an option here", "leave it out")
        await _require_permitted(location, secrets, uri)
        with _credentials(secrets):
            secrets.require(S3_SECRETS, _server(location))
            store: Any = connect_blobs(location)
    except StoreError as e:
        raise bad_input(f"{uri}: {e.message}", e.remedy) from e
    try:
        names = [item["path"] async for page in store.list() for item in page]
        _require_weights(names, uri)
        for name in filter(is_safe, names):
            await _download(store, name, _inside(target, name, uri))
    except AttemptError:
        raise
    except Exception as e:
        error = blobs_error(e, uri)  # type: ignore[arg-type]  # obstore's own errors, or the disk's
        raise AttemptError(
            Failure(FailureKind.STORE, f"{uri}: {error.message}", error.remedy)
        ) from e


async def _require_permitted(location: "S3Location", secrets: SecretValues, uri: str) -> None:
    """Checks the server that the user named, as for other imports.

    Raises:
        AttemptError: bad input; it is at an address that may not be reached.
    """
    region = location.region or secrets.get("AWS_REGION", "")
    if not _BUCKET.fullmatch(location.bucket) or not _REGION.fullmatch(region):
        raise bad_input(f"{uri}: the bucket or region is not a name", "write s3://BUCKET/DIRECTORY")
    endpoint = location.endpoint or secrets.get("AWS_ENDPOINT_URL_S3", "")
    endpoint = endpoint or secrets.get("AWS_ENDPOINT_URL", "")
    if not endpoint and os.environ.get("AWS_ENDPOINT_URL"):
        return  # the administrator's own server
    url = endpoint or _server(location)
    try:
        place = parse_target(url)
    except ValueError as e:
        raise bad_input(f"{uri}: the endpoint {e}", "write endpoint=https://HOST") from e
    if place.scheme not in ("https", "http"):
        raise bad_input(f"{uri}: the endpoint is not a URL", "write endpoint=https://HOST")
    try:
        await require_public(url, opened_only=place.scheme == "http")
    except OSError as e:
        message = f"{uri}: {place.host} does not resolve: {e}"
        raise AttemptError(Failure(FailureKind.STORE, message)) from e


def _server(location: "S3Location") -> str:
    """Returns the URL of the server that the client connects to."""
    endpoint = location.endpoint or os.environ.get("AWS_ENDPOINT_URL", "")
    region = location.region or os.environ.get("AWS_REGION", "")
    return endpoint or f"https://{location.bucket}.s3.{region or 'us-east-1'}.amazonaws.com"


@contextmanager
def _credentials(secrets: Mapping[str, str]) -> Iterator[None]:
    given = {name: value for name, value in secrets.items() if name in _OF_USERS}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _require_weights(names: list[str], uri: str) -> None:
    if any(n.endswith(".safetensors") for n in names):
        return
    pickled = next(filter(is_pickle, names), None)
    what = f"has pickled weights only ({pickled})" if pickled else "has no *.safetensors weights"
    raise bad_input(f"{uri} {what}", "put a model in safetensors there, or correct the address")


async def _download(store: Any, name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    answer = await store.get_async(name)
    with target.open("wb") as file:
        async for part in answer.stream(min_chunk_size=_READ_BYTES):
            await asyncio.to_thread(file.write, part)


def _inside(folder: Path, name: str, uri: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise bad_input(f"{uri}: {name!r} points outside the model", "rename the file")
    return path
