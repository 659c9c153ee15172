"""``http.request`` against a local server."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engines.egress.addresses import (
    ALLOW_VARIABLE,
    REQUEST_ALLOW_VARIABLE,
    AddressPolicy,
    FilteringResolver,
)
from flowmesh_worker.engines.http.request import HttpRequest

sys.path.insert(0, str(Path(__file__).parent))
from http_server import Seen, Site, rows_of, serving

TOKEN = "tok-0123456789"


def echo(seen: Seen) -> web.Response:
    return web.json_response(
        {"method": seen.method, "text": seen.text, "query": seen.query, "headers": seen.headers}
    )


def busy_twice(seen: Seen) -> web.Response:
    if seen.before < 2:
        return web.Response(status=503, headers={"Retry-After": "0"})
    return web.Response(text="at last")


PATHS = {
    "/echo": echo,
    "/busy-twice": busy_twice,
    "/busy": lambda _: web.Response(status=429, text="slow down", headers={"Retry-After": "0"}),
    "/busy-for-an-hour": lambda _: web.Response(status=429, headers={"Retry-After": "3600"}),
    "/gone": lambda _: web.Response(status=404, text="no such thing"),
    "/large": lambda _: web.Response(body=b"x" * 5000),
    "/latin": lambda _: web.Response(body="é".encode("latin-1"),
                                     headers={"Content-Type": "text/plain; charset=latin-1"}),
    "/away": lambda s: web.Response(status=302, headers={"Location": s.query["to"]}),
    "/round": lambda _: web.Response(status=302, headers={"Location": "/round"}),
    "/cookie": lambda _: web.Response(text="ok", headers={"Set-Cookie": "who=a"}),
}  # fmt: skip


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setenv(REQUEST_ALLOW_VARIABLE, "127.0.0.1/32")
    async with serving(PATHS) as one:
        yield one


async def request(rows: list[dict[str, Any]], secrets: Any = None, **params: Any) -> Any:
    return await rows_of(HttpRequest(), "http.request", rows, secrets, **params)


async def failure(rows: list[dict[str, Any]], secrets: Any = None, **params: Any) -> Failure:
    with pytest.raises(AttemptError) as caught:
        await request(rows, secrets, **params)
    return caught.value.failure


async def test_each_row_is_one_call_with_its_own_values(site: Site) -> None:
    rows = [{"q": "a b"}, {"q": "ä&c"}, {"q": "a b"}]
    url = site.url + "/echo?q={{ q | urlencode }}"
    headers = {"X-Q": "{{ q | length }}"}
    found = await request(rows, url=url, headers=headers, parse="json", maxConcurrency=1)
    assert [r["response"]["query"]["q"] for r in found] == ["a b", "ä&c", "a b"]
    assert [r["response"]["headers"]["X-Q"] for r in found] == ["3", "3", "3"]
    assert {(r["http_status"], r["http_error"]) for r in found} == {(200, None)}
    keys = [s.headers["Idempotency-Key"] for s in site.seen]
    assert len(set(keys)) == 3
    await request(rows, url=url, headers=headers, parse="json", maxConcurrency=1)
    assert [s.headers["Idempotency-Key"] for s in site.seen[3:]] == keys


async def test_content_is_text_or_json_with_templates_inside(site: Site) -> None:
    where: dict[str, Any] = {"url": site.url + "/echo", "method": "POST", "parse": "json"}
    [[text], [value]] = [
        await request([{"n": 'a"b'}], **where, body="n={{ n }}"),
        await request([{"n": 'a"b'}], **where, json={"deep": ["{{ n }}", 1, None]}),
    ]
    assert text["response"]["text"] == 'n=a"b'
    assert text["response"]["headers"]["Content-Type"] == "text/plain; charset=utf-8"
    assert json.loads(value["response"]["text"]) == {"deep": ['a"b', 1, None]}
    assert value["response"]["headers"]["Content-Type"] == "application/json"


@pytest.mark.parametrize("more", [{"method": "GET"}, {"method": "POST", "idempotent": True}])
async def test_a_request_to_a_busy_server_is_retried_if_that_is_harmless(
    site: Site, more: dict[str, Any]
) -> None:
    [row] = await request([{"a": 1}], url=site.url + "/busy-twice", **more)
    assert (row["response"], row["http_status"]) == ("at last", 200)
    assert len({s.headers["Idempotency-Key"] for s in site.seen}) == 1
    assert len(site.seen) == 3


async def test_a_request_that_must_not_be_repeated_is_sent_once(site: Site) -> None:
    busy = await failure([{"a": 1}], url=site.url + "/busy-twice", method="POST")
    assert busy.kind == FailureKind.ENGINE
    dead = await failure([{"a": 1}], url=site.url + "/dies", method="PUT", body="x")
    assert "may have acted on the call" in dead.remedy
    assert [s.path for s in site.seen] == ["/busy-twice", "/dies"]


async def test_a_request_to_a_server_that_dies_is_retried_if_that_is_harmless(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowmesh_worker.engines.http.retrying._FIRST_WAIT_S", 0.0)
    reported = await failure([{"a": 1}], url=site.url + "/dies", retries=2)
    assert reported.kind == FailureKind.ENGINE
    assert len(site.seen) == 3


async def test_a_request_that_never_reached_a_server_may_always_be_retried(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowmesh_worker.engines.http.retrying._FIRST_WAIT_S", 0.0)
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    engine = HttpRequest()
    engine._client._wait = note
    with pytest.raises(AttemptError):
        await rows_of(engine, "http.request", [{"a": 1}], url="http://127.0.0.1:9/x",
                      method="POST", retries=2)  # fmt: skip
    assert len(waits) == 2


async def test_retries_and_the_delay_that_a_server_may_request_are_bounded(site: Site) -> None:
    busy = await failure([{"a": 1}], url=site.url + "/busy", retries=2)
    assert (busy.kind, busy.detail) == (FailureKind.ENGINE, "slow down")
    hour = await failure([{"a": 1}], url=site.url + "/busy-for-an-hour")
    assert hour.retry_after_s == 3600
    assert [s.path for s in site.seen] == ["/busy"] * 3 + ["/busy-for-an-hour"]


async def test_failed_rows_are_recorded_if_requested(site: Site) -> None:
    rows = [{"to": "/gone"}, {"to": "/echo"}, {"to": "/large"}]
    url = site.url + "{{ to }}"
    gone, good, large = await request(rows, url=url, onError="record", maxBytes=4000)
    assert (gone["response"], gone["http_status"]) == (None, 404)
    assert "no such thing" in gone["http_error"]
    assert (good["http_status"], good["http_error"]) == (200, None)
    assert (large["response"], large["http_status"]) == (None, 200)
    assert "larger than 4,000 bytes" in large["http_error"]
    reported = await failure(rows, url=url, maxConcurrency=1)
    assert (reported.kind, reported.detail) == (FailureKind.BAD_INPUT, "no such thing")
    assert "row 1 of this chunk" in reported.message


async def test_a_response_that_is_not_json_is_a_failed_call(site: Site) -> None:
    [row] = await request([{"a": 1}], url=site.url + "/latin", parse="json", onError="record")
    assert "not JSON" in row["http_error"]
    [row] = await request([{"a": 1}], url=site.url + "/latin")
    assert row["response"] == "é"


@pytest.mark.parametrize(
    "url",
    [
        "https://localhost/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest",
        "https://[::ffff:10.0.0.1]/",
        "https://１２７.0.0.2/",  # noqa: RUF001 - full width
    ],
)
async def test_addresses_that_are_not_public_are_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOW_VARIABLE, "0.0.0.0/0, ::/0")  # opens imports, not requests
    monkeypatch.delenv(REQUEST_ALLOW_VARIABLE, raising=False)
    reported = await failure([{"a": 1}], url=url)
    assert reported.kind == FailureKind.BAD_INPUT
    assert "not a public address" in reported.message
    assert REQUEST_ALLOW_VARIABLE in reported.remedy


async def test_without_encryption_only_opened_addresses_are_requested(site: Site) -> None:
    assert "not encrypted" in (await failure([{"a": 1}], url="http://8.8.8.8/")).message
    with pytest.raises(AttemptError, match="not encrypted"):  # what a name is looked up as
        await FilteringResolver(AddressPolicy(), opened_only=True).resolve("8.8.8.8")
    port = site.url.rpartition(":")[2]
    [row] = await request([{"a": 1}], url=f"http://localhost:{port}/cookie")
    assert row["response"] == "ok"


async def test_redirects_are_checked_and_forward_no_credentials_to_another_host(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = "{{ to | urlencode }}"
    away = site.url + "/away?to=" + to
    reported = await failure([{"to": "https://10.0.0.1/x"}], url=away)
    assert "not a public address" in reported.message
    assert "too often" in (await failure([{"a": 1}], url=site.url + "/round")).message
    async with serving({"/echo": echo}) as other:
        rows = [{"to": other.url + "/echo"}, {"to": site.url + "/echo"}]
        found = await request(
            rows, {"key": TOKEN}, url=away, secret="key", parse="json", headers={"X-Mine": "m"}
        )
        there, here = (r["response"]["headers"] for r in found)
    assert not {"Authorization", "X-Mine", "Idempotency-Key"} & there.keys()
    assert {"Authorization", "X-Mine", "Idempotency-Key"} <= here.keys()
    posted = await failure([{"to": "/echo"}], url=away, method="POST", idempotent=True)
    assert "status 302" in posted.message


async def test_a_secret_is_sent_in_its_header_and_shown_nowhere(site: Site) -> None:
    secrets = {"key": TOKEN + "\n"}
    where: dict[str, Any] = {"url": site.url + "/echo", "secret": "key"}
    [row] = await request([{"a": 1}], secrets, **where)
    assert site.seen[-1].headers["Authorization"] == f"Bearer {TOKEN}"
    assert "Bearer [secret]" in row["response"]  # the server reported what it was sent
    await request([{"a": 1}], secrets, **where, secretHeader="X-Api-Key")
    assert site.seen[-1].headers["X-Api-Key"] == TOKEN
    assert "Authorization" not in site.seen[-1].headers
    assert "was not sent" in (await failure([{"a": 1}], {}, **where)).message


@pytest.mark.parametrize(
    "url",
    ["{{ to }}", "https://{{ to }}/x", "https://api.example.com{{ to }}", "https://a@{{ to }}"],
)
async def test_rows_cannot_send_a_secret_to_a_host_that_they_choose(url: str) -> None:
    reported = await failure([{"to": "@evil.example.com/"}], {"key": TOKEN}, url=url, secret="key")
    assert "host is written out" in reported.message


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"body": "x"}, "GET has no content"),
        ({"method": "POST", "body": "x", "json": 1}, "both body and json"),
        ({"headers": {"Host": "x"}}, "may not set 'Host'"),
        ({"headers": {"idempotency-key": "x"}}, "may not set"),
        ({"headers": {"a b": "x"}}, "may not set"),
        ({"headers": {"X": "{{ text }}"}}, "control characters"),
        ({"secret": "key", "headers": {"authorization": "x"}}, "so does with.secret"),
        ({"secret": "key", "secretHeader": "Host"}, "may not set 'Host'"),
        ({"url": "ftp://example.com"}, "use https:"),
        ({"url": "{{ text }}"}, "not a URL"),
        ({"url": "file:///etc/passwd"}, "file:/etc/passwd is not a URL that can be called"),
        ({"url": "{{ '' }}"}, "an empty text is not a URL"),
        ({"url": "https://example.com:x/"}, "not a URL"),
    ],
)
async def test_an_unsendable_request_is_refused_before_any_request_is_sent(
    site: Site, params: dict[str, Any], words: str
) -> None:
    given = {"url": site.url + "/echo", **params}
    reported = await failure([{"text": "a\r\nX-Evil: b"}], {"key": TOKEN}, **given)
    assert reported.kind == FailureKind.BAD_INPUT
    assert words in f"{reported.message} {reported.remedy}"
    assert site.seen == []


async def test_a_row_that_cannot_be_rendered_fails_before_any_call(site: Site) -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 0, "b": "y"}]
    reported = await failure(rows, url=site.url + "/echo?{{ 1 / a }}")
    assert "row 2 of this chunk" in reported.message
    assert site.seen == []


async def test_no_cookies_are_stored(site: Site) -> None:
    rows = [{"to": "/cookie"}, {"to": "/echo"}]
    await request(rows, url=site.url + "{{ to }}", maxConcurrency=1)
    assert all("Cookie" not in s.headers for s in site.seen)
