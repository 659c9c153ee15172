"""What a user's URI means: where to fetch it, with which headers, and what its file is called."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engines.imports.download import Sign
from flowmesh_worker.engines.imports.sigv4 import signed_headers

_SCHEMES = "https:, s3:, hf: or builtin:"
_DEFAULT_REGION = "us-east-1"
_HUB = "https://huggingface.co"
_HUB_PARTS = 2


@dataclass(frozen=True, slots=True)
class Source:
    """A place to fetch one file from.

    Attributes:
        url: where it is.
        name: the file's name, whose ending tells its format.
        sign: makes the headers that authorise it; None where it is public.
    """

    url: str
    name: str
    sign: Sign | None


def find_source(uri: str, secrets: Mapping[str, str], revision: str = "") -> Source:
    """Reads a URI that names one file.

    Args:
        uri: ``https://…``, ``s3://bucket/key?endpoint=…&region=…`` or
            ``hf://datasets/ORG/NAME/FILE``.
        secrets: of this attempt: ``AWS_ACCESS_KEY_ID`` and its kin, ``HF_TOKEN``.
        revision: for ``hf:``, the commit.

    Raises:
        AttemptError: kind ``bad-input``; says what can be used instead.
    """
    parts = urlsplit(uri)
    name = unquote(parts.path.rsplit("/", 1)[-1])
    match parts.scheme:
        case "https" | "http":
            return Source(uri, name, None)
        case "s3":
            return _s3(uri, secrets)
        case "hf":
            return _hub_file(uri, secrets, revision)
        case "file" | "":
            raise refused(
                f"{uri!r} is a path on some machine", "fmesh uploads files named ./path itself"
            )
    raise refused(f"{uri!r} is no URI that can be imported", f"use {_SCHEMES}")


def hub_repository(uri: str) -> tuple[str, str, str]:
    """The kind (``models`` or ``datasets``), repository and file of an ``hf:`` URI.

    Raises:
        AttemptError: it is not of the form ``hf://[datasets/]ORG/NAME[/FILE]``.
    """
    segments = uri.removeprefix("hf://").partition("@")[0].strip("/").split("/")
    kind = "models"
    if segments[0] in ("datasets", "models"):
        kind = segments.pop(0)
    if len(segments) < _HUB_PARTS or not all(segments):
        raise refused(f"{uri!r} names no repository", "write hf://[datasets/]ORG/NAME[/FILE]")
    return kind, "/".join(segments[:2]), "/".join(segments[2:])


@dataclass(frozen=True, slots=True)
class Folder:
    """The objects below a prefix of a bucket: a URL that lists them, page by page."""

    list_url: str
    sign: Sign | None


def find_folder(uri: str, secrets: Mapping[str, str]) -> Folder:
    """Reads ``s3://bucket/directory`` as a place that holds many files.

    Raises:
        AttemptError: kind ``bad-input``; it names no bucket.
    """
    object_url, _, sign = _s3_place(uri, secrets)
    root, prefix = object_url
    query = urlencode({"list-type": "2", "prefix": prefix.rstrip("/") + "/"}, quote_via=quote)
    return Folder(f"{root}/?{query}", sign)


def hub_headers(secrets: Mapping[str, str]) -> Sign | None:
    """The headers for the hub; None without a token."""
    token = secrets.get("HF_TOKEN", "")
    return (lambda _method, _url: {"Authorization": f"Bearer {token}"}) if token else None


def hub_url() -> str:
    """The hub's address."""
    return _HUB


def refused(message: str, remedy: str = "") -> AttemptError:
    """A failure of kind ``bad-input``."""
    return AttemptError(Failure(FailureKind.BAD_INPUT, message, remedy))


def _hub_file(uri: str, secrets: Mapping[str, str], revision: str) -> Source:
    kind, repository, file = hub_repository(uri)
    if not file:
        raise refused(
            f"{uri!r} names a repository, not a file", "add the file: hf://datasets/ORG/NAME/FILE"
        )
    prefix = "datasets/" if kind == "datasets" else ""
    at = quote(revision or "main", safe="")
    url = f"{hub_url()}/{prefix}{repository}/resolve/{at}/{quote(file)}"
    return Source(url, file.rsplit("/", 1)[-1], hub_headers(secrets))


def _s3(uri: str, secrets: Mapping[str, str]) -> Source:
    (root, key), name, sign = _s3_place(uri, secrets)
    return Source(f"{root}/{quote(key, safe='/-_.~')}", name, sign)


def _s3_place(uri: str, secrets: Mapping[str, str]) -> tuple[tuple[str, str], str, Sign | None]:
    parts = urlsplit(uri)
    options = {k: v[-1] for k, v in parse_qs(parts.query).items()}
    bucket, key = parts.netloc, unquote(parts.path.lstrip("/"))
    if not bucket or not key:
        raise refused(f"{uri!r} names no object", "write s3://BUCKET/KEY")
    region = options.get("region") or secrets.get("AWS_REGION") or _DEFAULT_REGION
    endpoint = options.get("endpoint") or secrets.get("AWS_ENDPOINT_URL", "")
    root = (
        f"{endpoint.rstrip('/')}/{bucket}"
        if endpoint
        else f"https://{bucket}.s3.{region}.amazonaws.com"
    )
    access, secret = secrets.get("AWS_ACCESS_KEY_ID", ""), secrets.get("AWS_SECRET_ACCESS_KEY", "")

    def sign(method: str, url: str) -> Mapping[str, str]:
        return signed_headers(
            method,
            url,
            access_key=access,
            secret_key=secret,
            session_token=secrets.get("AWS_SESSION_TOKEN", ""),
            region=region,
        )

    return (root, key), key.rsplit("/", 1)[-1], sign if access else None
