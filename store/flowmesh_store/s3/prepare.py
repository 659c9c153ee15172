"""``python -m flowmesh_store.s3.prepare``: creates a bucket and gives workers access to it.

The chart runs it before the operator, if it installs the S3 server too. It needs the credentials of
the bucket's owner, and may be repeated.
"""

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from flowmesh_core.errors import StoreError, StoreUnavailableError
from flowmesh_store.s3.location import S3Location, connect_records, parse_location

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_RETRY_S = 0.5
_WORKERS_MAY = (
    "s3:GetObject",
    "s3:PutObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)
_THERE = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})
_log = logging.getLogger(__name__)


def workers_policy(location: S3Location, account: str) -> dict[str, object]:
    """Returns a bucket policy that allows an account to get and put blobs, and nothing else.

    Args:
        location: of the store.
        account: the access key, or the server's other name of an account.
    """
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"AWS": [account]},
                "Action": list(_WORKERS_MAY),
                "Resource": [f"arn:aws:s3:::{location.bucket}/{location.key('cas/*')}"],
            }
        ],
    }


def prepare(url: str, *, workers: str = "", within_s: float = 60.0) -> None:
    """Creates the bucket if it is missing, and gives the workers' account access to its blobs.

    Args:
        url: address of the store.
        workers: the workers' account; empty to give no account access.
        within_s: how long to wait for the server's first answer.

    Raises:
        StoreError: the server refuses, or the address is malformed.
        StoreUnavailableError: it did not answer in time.
    """
    location = parse_location(url)
    client = connect_records(location)
    deadline = time.monotonic() + within_s
    while True:
        try:
            _make(client, location, workers)
        except BotoCoreError as e:
            if time.monotonic() > deadline:
                raise StoreUnavailableError(
                    f"the store did not answer within {within_s:.0f} s: {e}",
                    where=location.url,
                    remedy="look at the server's pod and its volume",
                ) from e
            time.sleep(_RETRY_S)
        else:
            return


def _make(client: "S3Client", location: S3Location, workers: str) -> None:
    try:
        try:
            client.create_bucket(Bucket=location.bucket)
            _log.info("made the bucket %s", location.bucket)
        except ClientError as e:
            if e.response.get("Error", {}).get("Code") not in _THERE:
                raise
        if workers:
            policy = json.dumps(workers_policy(location, workers))
            client.put_bucket_policy(Bucket=location.bucket, Policy=policy)
    except ClientError as e:
        raise StoreError(
            f"the server refuses: {e}",
            where=location.url,
            remedy="call this with the credentials of the bucket's owner",
        ) from e


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m flowmesh_store.s3.prepare")
    parser.add_argument("url", help="s3://bucket/prefix?endpoint=URL")
    parser.add_argument("--workers", default="", help="account that may read and put content")
    parser.add_argument("--within", type=float, default=60.0, help="seconds to wait for an answer")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    try:
        prepare(given.url, workers=given.workers, within_s=given.within)
    except (StoreError, StoreUnavailableError) as e:
        sys.stderr.write(f"{e}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
