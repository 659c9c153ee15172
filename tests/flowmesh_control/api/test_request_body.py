"""A body that cannot be read is the sender's fault; an error of the control plane is not."""

import logging
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from tests.attacks.by_hand import Place, noop, place
from tests.flowmesh_control.fabric import API_TOKEN

from flowmesh_control.api.responses import errors_as_json


async def answered(there: Place, method: str, path: str, body: bytes) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    url = there.control.url + path
    async with there.http.request(method, url, data=body, headers=headers) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    "body",
    [
        b'{"document": {"\xff": 1}}',
        b'{"document": {"a": "\xff"}}',
        b'{"document": {"a": "\\ud800"}}',
        b'{"document": ',
        b'{"share": "\xff", "scope": "\xff", "reason": "\xff", "deadline": "\xff"}',
    ],
)
async def test_an_unreadable_body_is_answered_with_400_on_every_route_that_reads_one(
    body: bytes,
) -> None:
    async with place() as there:
        uid = await there.submit("a", noop())
        for method, path in [
            ("POST", "/v1/runs"),
            ("POST", "/v1/plan"),
            ("POST", f"/v1/runs/{uid}/cancel"),
            ("POST", f"/v1/runs/{uid}/amend"),
            ("POST", f"/v1/runs/{uid}/audit"),
            ("PUT", "/v1/policies"),
            ("POST", "/v1/cache/purge"),
        ]:
            if path.endswith("cancel") and b"reason" not in body and body.endswith(b"}"):
                continue  # it reads nothing but a reason
            status, reply = await answered(there, method, path, body)
            assert (status, reply["error"]["where"]) == (400, "body"), (path, reply)
        assert (await there.control.services.views.status(uid)).phase != "Cancelled"


async def test_a_decoder_error_within_a_handler_is_an_internal_error() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        raise msgspec.ValidationError("of something that is not the body")

    response = await errors_as_json(make_mocked_request("GET", "/v1/audits"), handler)
    assert response.status == 500


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_is_not_encoded_as_it_says_is_the_senders_fault(
    caplog: pytest.LogCaptureFixture, encoding: str
) -> None:
    async with place() as there:
        headers = {"Authorization": f"Bearer {API_TOKEN}", "Content-Encoding": encoding}
        for path in ("/v1/plan", "/v1/datasets?namespace=a"):
            url = there.control.url + path
            async with there.http.post(url, data=b'{"a": 1}\n', headers=headers) as response:
                reply = await response.json()
                assert (response.status, reply["error"]["where"]) == (400, "body"), reply
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []
