"""The blob service as one object: proves its bucket, serves, and stops."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from flowmesh_control.api.connections import TimedRunner
from flowmesh_control.auth.tls_certificate import TlsCertificate
from flowmesh_control.blob_service.app import build_blob_service
from flowmesh_control.blob_service.grants import TokenGrants
from flowmesh_core.errors import StoreError
from flowmesh_core.protocol.attempt_tokens import CONTEXT, AttemptTokens
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.blobs import DEFAULT_GRACE_S
from flowmesh_store.s3.presigned_write_check import prove_presigned_puts
from flowmesh_store.s3.signing_bucket import open_signing_bucket

_SHUTDOWN_S = 5.0
log = logging.getLogger("flowmesh.control.blobs")


@dataclass(frozen=True, slots=True)
class BlobServiceSettings:
    """The settings of one process.

    Attributes:
        store: address of the bucket, as for ``open_store``.
        key_ring: the master keys, of which it derives those of attempt tokens.
        host: the address to listen on.
        port: the port; 0 for a free one.
        certificate: of the server; None for plain HTTP.
        grace_s: the collector's grace.
    """

    store: str
    key_ring: KeyRing
    host: str = "127.0.0.1"
    port: int = 0
    certificate: TlsCertificate | None = None
    grace_s: float = DEFAULT_GRACE_S


@asynccontextmanager
async def running_blob_service(settings: BlobServiceSettings) -> AsyncIterator[str]:
    """Yields the service's URL while it serves.

    Raises:
        StoreError: the store is no bucket, or its server does not enforce presigned URLs.
        StoreUnavailableError: it did not answer.
        OSError: the port is taken.
    """
    if not settings.store.startswith("s3:"):
        raise StoreError(
            "only the URLs of a bucket can be signed",
            where=settings.store,
            remedy="give s3://bucket/prefix; workers mount a store that is a directory",
        )
    async with AsyncExitStack() as stack:
        bucket = open_signing_bucket(settings.store, grace_s=settings.grace_s)
        stack.callback(bucket.close)
        async with aiohttp.ClientSession() as http:
            await prove_presigned_puts(bucket, http)
        tokens = AttemptTokens(settings.key_ring.derive(CONTEXT))
        app = build_blob_service(TokenGrants(tokens, time.time), bucket)
        runner = TimedRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        tls = settings.certificate.context if settings.certificate is not None else None
        site = web.TCPSite(runner, settings.host, settings.port, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        url = f"{'https' if tls else 'http'}://{settings.host}:{port}"
        log.info("the blob service of %s serves at %s", bucket.location.url, url)
        yield url
