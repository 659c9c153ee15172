"""The address of a bucket, and the two clients that access it with the same credentials."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import boto3
from botocore.config import Config
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.store import S3Store

from flowmesh_core.errors import StoreError
from flowmesh_store.trusted_authority import TrustedAuthority

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from obstore.store import ClientConfig, S3Config

DELETE_CONNECTIONS = 8
_ATTEMPTS = 5
_CONNECT_S = 5
_RETRY_FOR = timedelta(seconds=30)
_CREDENTIALS_FOR = timedelta(minutes=10)
"""The life that obstore is told credentials have. It asks boto3 again once five minutes of it are
left: with five minutes in all it would ask ten times a second. boto3 renews credentials that expire
ten minutes before they do, so none expires while obstore uses it."""
_EXAMPLE = "s3://bucket/prefix?endpoint=https://host&region=us-east-1"
_OPTIONS = frozenset({"endpoint", "region", "ca"})


@dataclass(frozen=True, slots=True)
class S3Location:
    """A bucket, a prefix in it (without slashes at its ends) and the server.

    Attributes:
        ca: file with the PEM certificates of the authority that signed the server's; the system's
            certificates are trusted if empty.
    """

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    ca: str = ""

    @property
    def url(self) -> str:
        """The address in the form of :func:`parse_location`."""
        query = "&".join(
            f"{name}={value}"
            for name, value in (
                ("endpoint", self.endpoint),
                ("region", self.region),
                ("ca", self.ca),
            )
            if value
        )
        return f"s3://{self.bucket}/{self.prefix}" + (f"?{query}" if query else "")

    def key(self, key: str) -> str:
        """Converts a key of this store to a key of the bucket."""
        return f"{self.prefix}/{key}" if self.prefix else key

    @property
    def authority(self) -> Path | None:
        """The file of ``ca``; None for the system's certificates."""
        return Path(self.ca) if self.ca else None


def parse_location(url: str) -> S3Location:
    """Parses ``s3://bucket/prefix?endpoint=URL&region=NAME&ca=FILE``.

    Raises:
        StoreError: it is malformed.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    unknown = set(options) - _OPTIONS
    prefix = parts.path.strip("/")
    if parts.scheme != "s3" or not parts.hostname or unknown or "//" in prefix or "@" in url:
        what = f"has unknown options {sorted(unknown)}" if unknown else "is malformed"
        raise StoreError(
            f"the address {parts.scheme}://{parts.hostname or ''}{parts.path} {what}",
            remedy=f"write {_EXAMPLE}; credentials come from the environment, never the address",
        )
    return S3Location(
        parts.netloc,
        prefix,
        options.get("endpoint", "").rstrip("/"),
        options.get("region", ""),
        options.get("ca", ""),
    )


def aws_session(location: S3Location) -> boto3.Session:
    """Returns a session with credentials of the environment, a profile or a role.

    Raises:
        StoreError: there are none.
    """
    session = boto3.Session(region_name=location.region or None)
    if session.get_credentials() is None:
        raise StoreError(
            "no AWS credentials were found",
            where=location.url,
            remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role",
        )
    return session


def connect_blobs(location: S3Location) -> S3Store:
    """Returns the client for blobs and records; no connection is opened yet.

    Raises:
        StoreError: there are no credentials, or the file of certificates cannot be used.
    """
    session = aws_session(location)
    options: ClientConfig = {"allow_http": location.endpoint.startswith("http://")}
    if location.authority is not None:
        TrustedAuthority(location.authority).context()  # its error names file and remedy
        options["root_certificate"] = location.authority.read_bytes()
    config: S3Config = {
        "region": session.region_name or "us-east-1",
        "virtual_hosted_style_request": not location.endpoint,
    }
    if location.endpoint:
        config["endpoint"] = location.endpoint
    return S3Store(
        location.bucket,
        prefix=location.prefix or None,
        config=config,
        credential_provider=Boto3CredentialProvider(session, ttl=_CREDENTIALS_FOR),
        client_options=options,
        retry_config={"max_retries": _ATTEMPTS, "retry_timeout": _RETRY_FOR},
    )


def connect_records(location: S3Location) -> "S3Client":
    """Returns the client that deletes records and creates buckets; no connection is opened yet.

    Raises:
        StoreError: there are no credentials.
    """
    return aws_session(location).client(
        "s3",
        endpoint_url=location.endpoint or None,
        region_name=location.region or None,
        verify=location.ca or None,
        config=Config(
            signature_version="s3v4",
            # Else the parts of an upload must have checksums, which others cannot know beforehand.
            request_checksum_calculation="when_required",
            connect_timeout=_CONNECT_S,
            max_pool_connections=DELETE_CONNECTIONS,
            retries={"mode": "standard", "max_attempts": _ATTEMPTS},
            s3={"addressing_style": "path" if location.endpoint else "auto"},
        ),
    )
