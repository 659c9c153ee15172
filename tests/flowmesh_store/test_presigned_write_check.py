"""The check of presigned PUTs at the start of the blob service, behind proxies with faults."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import boto3
import pytest
import versitygw
from aiohttp import hdrs, web
from tests.flowmesh_control.fabric import KEY
from tests.served_bucket import served
from yarl import URL

from flowmesh_control.blob_service.service import BlobServiceSettings, running_blob_service
from flowmesh_core.errors import StoreError

pytestmark = pytest.mark.slow


@asynccontextmanager
async def proxy(server: versitygw.S3Server, fault: str) -> AsyncIterator[str]:
    """Yields the endpoint of a proxy that makes a real server ignore conditions or signatures."""
    owner = boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1")

    async def forward(request: web.Request) -> web.Response:
        if fault == "conditions" and hdrs.IF_NONE_MATCH in request.headers:
            owner.delete_object(Bucket=versitygw.BUCKET, Key=request.path.split("/", 2)[2])
        url = URL(server.endpoint + request.raw_path, encoded=True)
        data = await request.read()
        async with http.request(request.method, url, data=data, headers=request.headers) as found:
            body, status = await found.read(), found.status
        if fault == "signatures" and status == 403:
            status = 200
        return web.Response(body=body, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    async with aiohttp.ClientSession() as http:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        await runner.cleanup()
    owner.close()


@pytest.mark.parametrize(
    ("fault", "said"),
    [("conditions", "wrote over an object"), ("signatures", "without the signed If-None-Match")],
)
async def test_a_server_that_ignores_what_is_signed_is_refused(
    s3_server: versitygw.S3Server, fault: str, said: str
) -> None:
    async with proxy(s3_server, fault) as endpoint:
        url = f"s3://{versitygw.BUCKET}/{fault}?endpoint={endpoint}&region=us-east-1"
        with pytest.raises(StoreError, match=said) as caught:
            async with running_blob_service(BlobServiceSettings(url, KEY)):
                pass
    assert "use a server that enforces presigned URLs" in caught.value.remedy


async def test_a_server_that_enforces_it_is_served_and_nothing_stays_there(
    s3_server: versitygw.S3Server, tmp_path: Path
) -> None:
    async with proxy(s3_server, "") as endpoint:
        url = f"s3://{versitygw.BUCKET}/right?endpoint={endpoint}&region=us-east-1"
        async with served(url, tmp_path):
            pass
    assert not list((s3_server.directory / versitygw.BUCKET).glob("right/proof/presigned-puts/*"))


async def test_a_directory_is_no_store_of_the_service(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="only the URLs of a bucket can be signed"):
        async with running_blob_service(BlobServiceSettings(str(tmp_path), KEY)):
            pass
