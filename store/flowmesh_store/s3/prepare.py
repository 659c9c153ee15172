"""``python -m flowmesh_store.s3.prepare``: creates a bucket that only its owner reads and writes.

The chart runs it before operator and blob service, if it installs the S3 server too. It needs the
credentials of the bucket's owner, and may be repeated.
"""

import argparse
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
_THERE = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})
_log = logging.getLogger(__name__)


def prepare(url: str, *, within_s: float = 60.0) -> None:
    """Creates the bucket if it is missing, and withdraws a policy that earlier releases gave it.

    Args:
        url: address of the store.
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
            _make(client, location)
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


def _make(client: "S3Client", location: S3Location) -> None:
    try:
        try:
            client.create_bucket(Bucket=location.bucket)
            _log.info("made the bucket %s", location.bucket)
        except ClientError as e:
            if e.response.get("Error", {}).get("Code") not in _THERE:
                raise
        # It let all workers read and put every blob.
        client.delete_bucket_policy(Bucket=location.bucket)
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
    parser.add_argument("--within", type=float, default=60.0, help="seconds to wait for an answer")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    try:
        prepare(given.url, within_s=given.within)
    except (StoreError, StoreUnavailableError) as e:
        sys.stderr.write(f"{e}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
