"""Interprets a user's URI: the URL to fetch, its headers, and the file's name."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from flowmesh_core.catalog.hub_addresses import (
    HubAddress,
    HubAddressError,
    read_hub_address,
)
from flowmesh_store.sigv4 import signed_headers
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.imports.download import Sign
from flowmesh_worker.secret_values import SecretValues

_SCHEMES = "https:, s3:, hf: or builtin:"
_DEFAULT_REGION = "us-east-1"
_HUB = "https://huggingface.co"
HUB_VARIABLE = "HF_ENDPOINT"
"""The address of a hub other than the public one: a mirror, or a private hub."""
HUB_TOKEN = "HF_TOKEN"
"""The secret that is sent to the hub."""
S3_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The secrets that requests to a bucket carry or are signed with."""
OFFLINE = "this worker may not reach the hub (HF_HUB_OFFLINE is set)"
OFFLINE_REMEDY = "use builtin:, s3:// or ./DIR, or a pool that may reach it"
_YES = frozenset({"1", "on", "yes", "true"})
HUB_REMEDIES = {
    401: "check the name; a gated or private repository needs a token, as the secret HF_TOKEN",
    403: "accept its terms on the hub, and give a token that may read it as the secret HF_TOKEN",
    404: "check name, revision and file",
}
"""Remedies by the hub's error status."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """The source of one file.

    Attributes:
        url: the URL to fetch.
        name: the file's name, whose ending gives its format.
        sign: returns the headers that authorise the fetch; None for a public file.
    """

    url: str
    name: str
    sign: Sign | None


def find_source(uri: str, secrets: SecretValues) -> FileSource:
    """Parses the URI of one file; for a hub see :func:`hub_file`.

    Args:
        uri: ``https://…`` or ``s3://bucket/key?endpoint=…&region=…``.
        secrets: of this attempt: ``AWS_ACCESS_KEY_ID`` and so on.

    Raises:
        AttemptError: kind ``bad-input``; the scheme is not supported.
    """
    parts = urlsplit(uri)
    name = unquote(parts.path.rsplit("/", 1)[-1])
    match parts.scheme:
        case "https" | "http":
            return FileSource(uri, name, None)
        case "s3":
            return _s3(uri, secrets)
        case "file" | "":
            raise bad_input(f"{uri!r} is a local path", "write ./path, which fmesh uploads")
    raise bad_input(f"{uri!r} is not a URI that can be imported", f"use {_SCHEMES}")


def hub_address(uri: str, *, dataset: bool = True) -> HubAddress:
    """Parses an ``hf:`` URI.

    Args:
        uri: the URI.
        dataset: whether it is of a data set, not of a model.

    Raises:
        AttemptError: kind ``bad-input``; the URI is not valid.
    """
    try:
        return read_hub_address(uri, dataset=dataset)
    except HubAddressError as e:
        raise bad_input(str(e)) from e


@dataclass(frozen=True, slots=True)
class Folder:
    """The objects below a prefix of a bucket: a URL that lists them in pages."""

    list_url: str
    sign: Sign | None


def find_folder(uri: str, secrets: SecretValues) -> Folder:
    """Parses ``s3://bucket/directory``.

    Raises:
        AttemptError: kind ``bad-input``; it names no bucket or no directory.
    """
    object_url, _, sign = _s3_place(uri, secrets)
    root, prefix = object_url
    query = urlencode({"list-type": "2", "prefix": prefix.rstrip("/") + "/"}, quote_via=quote)
    return Folder(f"{root}/?{query}", sign)


def hub_headers(secrets: SecretValues) -> Sign | None:
    """Returns the headers for the hub; None without a token."""
    token = secrets.get(HUB_TOKEN, "")
    if not token:
        return None

    def sign(_method: str, url: str) -> Mapping[str, str]:
        secrets.require([HUB_TOKEN], url)
        return {"Authorization": f"Bearer {token}"}

    return sign


def hub_url() -> str:
    """Returns the hub's address, from the variable that the model libraries read too."""
    return (os.environ.get(HUB_VARIABLE) or _HUB).rstrip("/")


def hub_revision_url(address: HubAddress) -> str:
    """Returns the URL of the hub's description of a revision: its commit and files."""
    kind = "datasets" if address.dataset else "models"
    at = f"/revision/{quote(address.revision, safe='')}" if address.revision else ""
    return f"{hub_url()}/api/{kind}/{address.repository}{at}"


def require_hub(uri: str) -> None:
    """Refuses a fetch from the hub if this worker may not reach it.

    Raises:
        AttemptError: kind ``bad-input``.
    """
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in _YES:
        raise bad_input(
            f"{uri}: {OFFLINE}",
            OFFLINE_REMEDY,
        )


def hub_file(address: HubAddress, secrets: SecretValues) -> FileSource:
    """Returns the source of one file of a repository, at the address's revision."""
    prefix = "datasets/" if address.dataset else ""
    at = quote(address.revision or "main", safe="")
    url = f"{hub_url()}/{prefix}{address.repository}/resolve/{at}/{quote(address.file)}"
    return FileSource(url, address.file.rsplit("/", 1)[-1], hub_headers(secrets))


def _s3(uri: str, secrets: SecretValues) -> FileSource:
    (root, key), name, sign = _s3_place(uri, secrets)
    return FileSource(f"{root}/{quote(key, safe='/-_.~')}", name, sign)


def _s3_place(uri: str, secrets: SecretValues) -> tuple[tuple[str, str], str, Sign | None]:
    parts = urlsplit(uri)
    options = {k: v[-1] for k, v in parse_qs(parts.query).items()}
    bucket, key = parts.netloc, unquote(parts.path.lstrip("/"))
    if not bucket or not key:
        raise bad_input(f"{uri!r} names no object", "write s3://BUCKET/KEY")
    region = options.get("region") or secrets.get("AWS_REGION") or _DEFAULT_REGION
    endpoint = options.get("endpoint") or secrets.get("AWS_ENDPOINT_URL", "")
    root = (
        f"{endpoint.rstrip('/')}/{bucket}"
        if endpoint
        else f"https://{bucket}.s3.{region}.amazonaws.com"
    )
    access, secret = secrets.get("AWS_ACCESS_KEY_ID", ""), secrets.get("AWS_SECRET_ACCESS_KEY", "")

    def sign(method: str, url: str) -> Mapping[str, str]:
        secrets.require(S3_SECRETS, url)
        return signed_headers(
            method,
            url,
            access_key=access,
            secret_key=secret,
            session_token=secrets.get("AWS_SESSION_TOKEN", ""),
            region=region,
        )

    return (root, key), key.rsplit("/", 1)[-1], sign if access else None
