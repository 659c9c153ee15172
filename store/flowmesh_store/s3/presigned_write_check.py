"""Checks at start that an S3 server enforces what presigned URLs say.

That a worker can neither overwrite another's blob nor put one elsewhere rests on it: a server that
ignores a signed ``If-None-Match``, or accepts a URL for another key, must not be used by workers
that are not trusted. The blob service runs the check before it serves.
"""

import asyncio
import contextlib
import os

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError

from flowmesh_core.errors import StoreError
from flowmesh_store.s3.signing_bucket import PROBE_KEY, SigningBucket
from flowmesh_store.signed_objects import ObjectExistsError, SignedObjects, UrlRefusedError

_CONDITION = {"If-None-Match": "*"}
_DATA = b"proof"


async def prove_presigned_puts(bucket: SigningBucket, http: aiohttp.ClientSession) -> None:
    """Puts one small object through URLs that must work and that must not; deletes it.

    Then it puts the object that workers look for (``BlobUrls.probe``).

    Raises:
        StoreError: the server does not enforce a URL, or refuses a right one.
        StoreUnavailableError: it did not answer.
    """
    objects = SignedObjects(http, bucket.location.authority)
    key = bucket.location.key(f"proof/presigned-puts/{os.urandom(16).hex()}")
    signed = {"if-none-match": "*", "content-length": str(len(_DATA))}
    url = bucket.urls.presigner.url("PUT", key, headers=signed)
    try:
        if await _succeeds(objects, url, _DATA, {}):
            raise _unsafe("a PUT without the signed If-None-Match was accepted")
        if await _succeeds(objects, url, _DATA + b"s", _CONDITION):
            raise _unsafe("a PUT of more bytes than were signed was accepted")
        if await _succeeds(objects, url.replace(key, f"{key}-other"), _DATA, _CONDITION):
            await asyncio.to_thread(bucket.delete, f"{key}-other")
            raise _unsafe("a URL was accepted for another key")
        if not await _succeeds(objects, url, _DATA, _CONDITION):
            raise _unsafe("a presigned PUT of a new object was refused")
        if await _succeeds(objects, url, _DATA, _CONDITION):
            raise _unsafe(
                "If-None-Match: * of a presigned PUT was ignored: it wrote over an object"
            )
    finally:
        # What is wrong has been said, and an object that stays does no harm.
        with contextlib.suppress(BotoCoreError, ClientError):
            await asyncio.to_thread(bucket.delete, key)
    await _put_probe(bucket, objects)


async def _put_probe(bucket: SigningBucket, objects: SignedObjects) -> None:
    """Puts the object that workers look for: some servers refuse to say that there is none."""
    headers = {"content-length": str(len(_DATA))}
    key = bucket.location.key(PROBE_KEY)
    await objects.put(bucket.urls.presigner.url("PUT", key, headers=headers), _DATA)


async def _succeeds(
    objects: SignedObjects, url: str, data: bytes, condition: dict[str, str]
) -> bool:
    try:
        await objects.put(url, data, condition)
    except (ObjectExistsError, UrlRefusedError):
        return False
    return True


def _unsafe(reason: str) -> StoreError:
    return StoreError(
        reason,
        where="store",
        remedy="use a server that enforces presigned URLs and conditional PUTs (AWS S3, versitygw,"
        " MinIO), and check its clock and the rights of the account: workers would else reach the"
        " content of every tenant",
    )
