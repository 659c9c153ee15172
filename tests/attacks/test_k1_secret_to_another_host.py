"""Attacker: T1, a tenant that may create workflows and not get the namespace's Secrets.
Action: sends a Secret that the operator may read to a host of its own, by each engine that can.
Must not happen: a host that the Secret's owner did not name gets any part of it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.flowmesh_worker.engines.http.http_server import Seen, Site, rows_of, serving

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engine_api import HostSettings, Work
from flowmesh_worker.engines.egress.addresses import ALLOW_VARIABLE
from flowmesh_worker.engines.http.chat import HttpChat
from flowmesh_worker.engines.http.request import HttpRequest
from flowmesh_worker.engines.imports.dataset import DatasetImport
from flowmesh_worker.engines.imports.resolve import Resolve
from flowmesh_worker.engines.models.importing import ModelImport
from flowmesh_worker.secret_values import SecretValues

VALUES = {
    "key": "the-secret-of-team-a",
    "HF_TOKEN": "hf_the-secret-of-team-a",
    "AWS_ACCESS_KEY_ID": "AKIATEAMA",
    "AWS_SECRET_ACCESS_KEY": "the-secret-of-team-a",
    "AWS_SESSION_TOKEN": "the-session-of-team-a",
}
Send = Callable[[str, SecretValues, Path], Any]


def answer(_: Seen) -> web.Response:
    return web.json_response({"sha": "a" * 40, "siblings": []})


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    paths = ("/", "/bucket/rows.jsonl", "/bucket", "/v1/chat/completions")
    hub = tuple(f"/api/{kind}/org/private" for kind in ("datasets", "models"))
    async with serving(dict.fromkeys((*paths, *hub), answer)) as found:
        for variable in (ALLOW_VARIABLE, "FLOWMESH_HTTP_ALLOW"):
            monkeypatch.setenv(variable, "127.0.0.1/32")
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        yield found


async def request(url: str, secrets: SecretValues, _: Path) -> None:
    await rows_of(HttpRequest(), "http.request", [{"a": 1}], secrets, url=url, secret="key")


async def chat(url: str, secrets: SecretValues, _: Path) -> None:
    params = {
        "endpoint": f"{url}/v1",
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "retries": 0,
    }
    await rows_of(HttpChat(), "http.chat", [{"a": 1}], secrets, secret="key", **params)


async def ran(engine: Any, secrets: SecretValues, folder: Path, **params: Any) -> None:
    await engine.load({}, HostSettings((), 512, 1, {}, folder))
    values = {"revision": "", "format": "auto", **params}
    await engine.run(Work("a", "a", values, {}, {}, folder, secrets=secrets), lambda *_: None)


async def rows_of_bucket(url: str, secrets: SecretValues, folder: Path) -> None:
    uri = f"s3://bucket/rows.jsonl?endpoint={url}"
    await ran(DatasetImport(), secrets, folder, uri=uri)


async def rows_of_hub(_: str, secrets: SecretValues, folder: Path) -> None:
    await ran(DatasetImport(), secrets, folder, uri="hf://org/private")


async def pin_of_bucket(url: str, secrets: SecretValues, folder: Path) -> None:
    await ran(Resolve(), secrets, folder, uri=f"s3://bucket/m?endpoint={url}", kind="model")


async def pin_of_hub(_: str, secrets: SecretValues, folder: Path) -> None:
    await ran(Resolve(), secrets, folder, uri="hf://org/private", kind="model")


async def model_of_bucket(url: str, secrets: SecretValues, folder: Path) -> None:
    await ran(ModelImport(), secrets, folder, uri=f"s3://bucket/m?endpoint={url}")


async def model_of_hub(_: str, secrets: SecretValues, folder: Path) -> None:
    await ran(ModelImport(), secrets, folder, uri="hf://org/private")


SENDERS: list[Send] = [
    request, chat, rows_of_bucket, rows_of_hub, pin_of_bucket, pin_of_hub, model_of_bucket,
    model_of_hub,
]  # fmt: skip


@pytest.mark.parametrize("send", SENDERS, ids=lambda send: send.__name__)
@pytest.mark.parametrize("hosts", [(), ("api.example.com",), ("*.0.0.1", "127.0.0.10")], ids=str)
async def test_a_secret_is_not_sent_to_a_host_that_its_owner_did_not_name(
    send: Send, hosts: tuple[str, ...], site: Site, tmp_path: Path
) -> None:
    secrets = SecretValues(VALUES, dict.fromkeys(VALUES, hosts) if hosts else {})
    with pytest.raises(AttemptError) as refused:
        await send(site.url, secrets, tmp_path)
    assert refused.value.failure.kind == FailureKind.BAD_INPUT
    assert "may not be sent to 127.0.0.1" in refused.value.failure.message
    assert "flowmesh.dev/hosts" in refused.value.failure.remedy
    assert site.seen == []


@pytest.mark.parametrize(
    "send", [s for s in SENDERS if s is not model_of_hub], ids=lambda send: send.__name__
)
async def test_a_secret_is_sent_to_a_host_that_its_owner_named(
    send: Send, site: Site, tmp_path: Path
) -> None:
    secrets = SecretValues(VALUES, dict.fromkeys(VALUES, ("127.0.0.1",)))
    with contextlib.suppress(AttemptError):  # the server here has neither models nor rows
        await send(site.url, secrets, tmp_path)
    assert site.seen[0].headers["Authorization"]


@pytest.mark.parametrize(
    ("hosts", "url", "allowed"),
    [
        (("api.example.com",), "https://api.example.com/v1", True),
        (("api.example.com",), "https://API.example.com:8443/v1", True),
        (("api.example.com",), "https://api.example.com.evil.org/", False),
        (("api.example.com",), "https://evil-api.example.com/", False),
        (("api.example.com",), "https://api.example.com@evil.org/", False),
        (("api.example.com",), "https://evil.org/?api.example.com", False),
        (("*.example.com",), "https://a.b.example.com/", True),
        (("*.example.com",), "https://example.com/", False),
        (("*.example.com",), "https://.example.com/", False),
        (("*.example.com",), "https://evilexample.com/", False),
        (("*",), "https://anything.org/", True),
        ((), "https://api.example.com/", False),
        (("api.example.com",), "not a URL", False),
    ],
)
def test_host_names_are_compared_as_a_whole(
    hosts: tuple[str, ...], url: str, allowed: bool
) -> None:
    secrets = SecretValues({"key": "value"}, {"key": hosts})
    if allowed:
        secrets.require(["key"], url)
        return
    with pytest.raises(AttemptError, match="may not be sent"):
        secrets.require(["key"], url)


def test_the_repr_of_secrets_shows_no_value() -> None:
    assert "the-secret" not in repr(SecretValues(VALUES, {"key": ("a.example.com",)}))


async def test_every_request_of_the_hub_client_library_is_checked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import get_session

    from flowmesh_worker.engines.models.hub import _checked_requests

    secrets = SecretValues(VALUES, {"HF_TOKEN": ("hub.example.com",)})
    headers = {"Authorization": f"Bearer {VALUES['HF_TOKEN']}"}

    def fetch() -> None:
        with _checked_requests(secrets):
            get_session().get(f"{site.url}/", headers={"X-Mine": "1"})  # without the token
            get_session().get(f"{site.url}/", headers=headers)

    with pytest.raises(AttemptError, match="may not be sent to 127"):
        await asyncio.to_thread(fetch)
    assert ["Authorization" in r.headers for r in site.seen] == [False]
