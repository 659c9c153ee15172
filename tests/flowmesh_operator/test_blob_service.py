"""The blob service as the chart runs it: a process of its own, with the gateway's certificate."""

import asyncio
import datetime
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from tests.blob_views import SCOPE
from tests.flowmesh_store import versitygw
from tests.served_bucket import attempt_token, s3_server

from flowmesh_core.errors import StoreUnavailableError
from flowmesh_operator.access.gateway_certificate import gateway_certificate
from flowmesh_operator.exit_codes import OperatorExitCode
from flowmesh_store.blob_service.views import open_blob_service
from flowmesh_store.hashing import digest_of
from flowmesh_store.signed_objects import UrlRefusedError

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(
    directory: Path, store: str, port: int, account: Path | None = None
) -> "subprocess.Popen[bytes]":
    (directory / "master-key").write_bytes(b"k" * 32)
    made = gateway_certificate(["localhost"], 1, datetime.datetime.now(datetime.UTC))
    for name, content in made.items():
        (directory / name).write_bytes(content)
    settings = {
        "STORE": store, "MASTER_KEY_FILE": str(directory / "master-key"),
        "TLS_CERT": str(directory / "tls.crt"), "TLS_KEY": str(directory / "tls.key"),
        "BLOB_SERVICE_PORT": str(port), "GATEWAY_HOST": "127.0.0.1",
        "STORE_ACCOUNT_DIR": str(account or ""),
    }  # fmt: skip
    environment = {**os.environ, **{f"FLOWMESH_{n}": value for n, value in settings.items()}}
    with (directory / "service.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "flowmesh_operator.blob_service"],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip


async def until_healthy(url: str, authority: Path) -> None:
    context = ssl.create_default_context(cafile=authority)
    async with aiohttp.ClientSession() as http, asyncio.timeout(60):
        while True:
            try:
                async with http.get(f"{url}/healthz", ssl=context) as answer:
                    assert answer.status == 200
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)  # the condition is its first answer


async def test_it_serves_with_tls_until_it_is_stopped(tmp_path: Path) -> None:
    with s3_server(tmp_path / "s3") as server:
        port = free_port()
        url, data = f"https://127.0.0.1:{port}", b"content" * 1000
        process = start(tmp_path, server.url("store"), port)
        try:
            await until_healthy(url, tmp_path / "ca.crt")
            async with open_blob_service(url, authority=tmp_path / "ca.crt") as views:
                own = views.view(write=SCOPE, read=(SCOPE,), token=attempt_token())
                await own.put(digest_of(data), data)
                assert await own.get(digest_of(data)) == data
            async with open_blob_service(url) as views:
                own = views.view(write=SCOPE, read=(SCOPE,), token=attempt_token())
                with pytest.raises(StoreUnavailableError, match="certificate") as caught:
                    await own.missing([digest_of(data)])
                assert "delete flowmesh-gateway-tls" in caught.value.remedy
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(30)
        assert code == OperatorExitCode.STOPPED, (tmp_path / "service.log").read_text()[-2000:]


async def test_after_a_change_of_the_account_it_ends_to_be_started_with_the_new_one(
    tmp_path: Path,
) -> None:
    """The S3 server and the mounted Secret get another account under a running service."""
    program, port, service_port = versitygw.binary(), versitygw.free_port(), free_port()
    assert program is not None
    account, authority = tmp_path / "account", tmp_path / "ca.crt"
    url = f"https://127.0.0.1:{service_port}"
    account.mkdir()
    (account / "AWS_SECRET_ACCESS_KEY").write_text(versitygw.SECRET_KEY)
    with pytest.MonkeyPatch.context() as environment:
        environment.setattr(os, "environ", os.environ.copy())
        versitygw.set_credentials(os.environ)
        with versitygw.running(program, tmp_path / "s3", port=port) as server:
            store = server.url("store")
            process = start(tmp_path, store, service_port, account)
            await until_healthy(url, authority)
            async with open_blob_service(url, authority=authority) as views:
                await views.look()
        with versitygw.running(program, tmp_path / "s3", port=port, secret="another", bucket=False):
            async with open_blob_service(url, authority=authority) as views:
                with pytest.raises(UrlRefusedError, match="403"):
                    await views.look()
            (account / "AWS_SECRET_ACCESS_KEY").write_text("another")
            assert await asyncio.to_thread(process.wait, 60) == OperatorExitCode.STOPPED
            assert "AWS_SECRET_ACCESS_KEY changed" in (tmp_path / "service.log").read_text()


def test_a_store_that_is_no_bucket_ends_it_with_the_remedy(tmp_path: Path) -> None:
    process = start(tmp_path, str(tmp_path / "directory"), free_port())
    assert process.wait(60) == OperatorExitCode.FAILED
    assert "give s3://bucket/prefix" in (tmp_path / "service.log").read_text()
