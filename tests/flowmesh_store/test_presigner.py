"""Presigned URLs: those that boto3 signs, character by character."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import botocore.auth
import pytest
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials

from flowmesh_core.units import Digest
from flowmesh_store.s3.location import S3Location, parse_location
from flowmesh_store.s3.presigner import Presigner, bucket_address
from flowmesh_store.s3.signing_bucket import BlobUrls

NOW = datetime(2026, 11, 24, 3, 4, 5, tzinfo=UTC)
DIGEST = Digest("ab" * 32)
BUCKETS = [
    "s3://fabric/some/prefix?endpoint=http://127.0.0.1:7070&region=us-east-1",
    "s3://fabric?endpoint=https://minio.example.com&region=eu-1",
    "s3://fabric/p?region=us-west-2",
    "s3://fabric.with.dots/p?region=eu-central-1",
]
TOKENS = ["", "IQoJb3JpZ2luX2VjE/+aGVsbG8=="]


@pytest.fixture(autouse=True)
def _at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW.replace(tzinfo=None))


def both(url: str, token: str) -> tuple[BlobUrls, Any, S3Location]:
    """Returns ours and boto3's, with the same credentials."""
    location = parse_location(url)
    who = ReadOnlyCredentials("AKIA/EXAMPLE", "secret+key", token or None, None)
    client = boto3.client(
        "s3",
        endpoint_url=location.endpoint or None,
        region_name=location.region,
        aws_access_key_id=who.access_key,
        aws_secret_access_key=who.secret_key,
        aws_session_token=who.token,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path" if location.endpoint else "virtual"},
        ),
    )
    address = bucket_address(location, client.meta.endpoint_url, location.region)
    return BlobUrls(Presigner(address, lambda: who, lambda: NOW), location), client, location


def same(ours: str, theirs: str) -> None:
    one, other = urlsplit(ours), urlsplit(theirs)
    assert (one.scheme, one.netloc, one.path) == (other.scheme, other.netloc, other.path)
    assert parse_qs(one.query) == parse_qs(other.query)


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("url", BUCKETS)
def test_urls_are_those_of_boto3(url: str, token: str) -> None:
    ours, client, location = both(url, token)
    key = location.key(f"cas/ns-a.b@c=d/ab/{DIGEST}")
    where = {"Bucket": location.bucket, "Key": key}

    def theirs(method: str, **more: Any) -> str:
        return str(client.generate_presigned_url(method, Params={**where, **more}, ExpiresIn=900))

    scope = "ns-a.b@c=d"
    same(ours.read("GET", scope, DIGEST), theirs("get_object"))
    same(ours.read("HEAD", scope, DIGEST), theirs("head_object"))
    put = theirs("put_object", IfNoneMatch="*", ContentLength=1234)
    same(ours.put(scope, DIGEST, 1234), put)
    same(
        ours.put(scope, DIGEST, 0, '"d41d8c"'),
        theirs("put_object", IfMatch='"d41d8c"', ContentLength=0),
    )
    same(
        ours.part(scope, DIGEST, "up/load+id=", 7, 16 << 20),
        theirs("upload_part", UploadId="up/load+id=", PartNumber=7, ContentLength=16 << 20),
    )


def test_the_key_of_the_day_changes_with_day_and_credentials() -> None:
    location = parse_location(BUCKETS[0])
    address = bucket_address(location, location.endpoint, location.region)
    now, who = [NOW], [ReadOnlyCredentials("a", "one", None, None)]
    shared = Presigner(address, lambda: who[0], lambda: now[0])

    def fresh() -> str:
        return Presigner(address, lambda: who[0], lambda: now[0]).url("GET", "key")

    seen = {shared.url("GET", "key")}
    for moment, secret in ((NOW, "two"), (NOW.replace(day=25), "two"), (NOW, "two")):
        now[0], who[0] = moment, ReadOnlyCredentials("a", secret, None, None)
        assert shared.url("GET", "key") == fresh()
        seen.add(shared.url("GET", "key"))
    assert len(seen) == 3
