"""Which requests are logged, how, and when; and what is never logged."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, WSServerHandshakeError
from tests.attacks.by_hand import TOKENS, Place, control_on, end_of, noop, place
from tests.attacks.tenants import ADMIN, ATTACKER, OWNER, Tenants, tenants
from tests.flowmesh_control.fabric import API_TOKEN, workflow
from tests.flowmesh_control.request_log.logs import data_of

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_control.control_plane import ControlPlane
from flowmesh_control.request_log.counts import REFUSALS_A_MINUTE
from flowmesh_control.request_log.fabric_events import FabricEvents
from flowmesh_control.request_log.verification import log_keys
from flowmesh_core.errors import StoreFullError, StoreUnavailableError
from flowmesh_store.memory import MemoryRecords
from flowmesh_store.store import Store, open_store

Entry = dict[str, Any]


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Tenants]:
    async with tenants(tmp_path) as found:
        yield found


@pytest.fixture
async def by_hand() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def entries_of(control: ControlPlane) -> list[Entry]:
    """All entries, after those in memory were written."""
    await control.services.request_log.flush()
    return await stored(control._bare_store)


async def stored(store: Store) -> list[Entry]:
    found = []
    for key in await log_keys(store.records):
        lines = (await data_of(store, key)).splitlines()[1:-1]
        found += [msgspec.json.decode(line) for line in lines]
    return found


def about(entries: list[Entry], resource: str) -> list[tuple[Any, ...]]:
    """User, verb, subresource, namespace, name, status of the entries about a resource."""
    return [
        (
            e["user"].get("username", ""),
            e["verb"],
            e["objectRef"].get("subresource", ""),
            e["objectRef"].get("namespace", ""),
            e["objectRef"].get("name", ""),
            e.get("responseStatus", {}).get("code", 0),
        )
        for e in entries
        if e["objectRef"]["resource"] == resource
    ]


async def test_changes_and_refusals_are_logged_with_user_and_object(there: Tenants) -> None:
    body = {"document": workflow("mine", noop())}
    uid = (await there.ask(OWNER, "POST", "/v1/runs", body=body, status=201))["uid"]
    await there.ask(ATTACKER, "POST", f"/v1/runs/{uid}/cancel", status=404)
    await there.ask(ATTACKER, "POST", "/v1/runs", body=body, status=403)
    await there.ask("nobody", "POST", f"/v1/runs/{uid}/cancel", status=401)
    await there.ask(OWNER, "POST", f"/v1/runs/{uid}/cancel")
    await there.ask(OWNER, "POST", f"/v1/runs/{uid}/cancel", status=409)
    entries = await entries_of(there.control)
    assert about(entries, "runs") == [
        (OWNER, "create", "", "team-a", uid, 201),
        (ATTACKER, "update", "cancel", "", uid, 404),
        (ATTACKER, "create", "", "team-a", "", 403),
        ("", "update", "cancel", "", uid, 401),
        (OWNER, "update", "cancel", "team-a", uid, 200),
        (OWNER, "update", "cancel", "team-a", uid, 409),
    ]
    assert {e["requestURI"] for e in entries} == {"/v1/runs", f"/v1/runs/{uid}/cancel"}
    assert {tuple(e["sourceIPs"]) for e in entries} == {("127.0.0.1",)}
    assert {e["stage"] for e in entries} == {"ResponseComplete"}
    assert all(e["requestReceivedTimestamp"] <= e["stageTimestamp"] for e in entries)


async def test_uploads_and_downloads_are_logged_and_references_are_not(there: Tenants) -> None:
    path = "/v1/datasets?namespace=team-a&name=private-name.jsonl"
    made = await there.ask(OWNER, "POST", path, data=b'{"secret": "row"}\n', status=201)
    content = f"/v1/content?namespace=team-a&reference={made['reference']}"
    assert b"row" in await there.ask(OWNER, "GET", content)
    other = content.replace("team-a", "team-b")
    await there.ask(ATTACKER, "GET", other, status=403)
    await there.ask(ATTACKER, "GET", f"/v1/lineage/{made['reference']}", status=404)
    entries = await entries_of(there.control)
    assert about(entries, "datasets") == [(OWNER, "create", "", "team-a", made["digest"], 201)]
    assert about(entries, "content") == [
        (OWNER, "get", "", "team-a", made["digest"], 200),
        (ATTACKER, "get", "", "team-b", "", 403),
    ]
    assert about(entries, "lineage") == [(ATTACKER, "list", "", "", "", 404)]
    [download] = [e for e in entries if e["stage"] == "ResponseStarted"]
    assert download["requestURI"] == "/v1/content"
    text = json.dumps(entries)
    for never in (made["reference"], "private-name", "row", "-token", "Bearer"):
        assert never not in text, never


async def test_plain_reads_are_counted_by_minute(there: Tenants) -> None:
    log = there.control.services.request_log
    for _ in range(3):
        await there.ask(OWNER, "GET", "/v1/runs?namespace=team-a")
    await there.ask(ADMIN, "GET", "/v1/workers")
    assert await entries_of(there.control) == []
    log._add_counts(unfinished=True)
    entries = await entries_of(there.control)
    assert sorted(about(entries, "runs") + about(entries, "workers")) == [
        (ADMIN, "list", "", "", "", 200),
        (OWNER, "list", "", "", "", 200),
    ]
    counts = {e["user"]["username"]: e["annotations"]["flowmesh.dev/count"] for e in entries}
    assert counts == {OWNER: "3", ADMIN: "1"}


async def test_reports_of_routers_are_counted_by_minute(there: Tenants) -> None:
    """Each router sends one every few seconds, which would fill the log."""
    for age_s in (5.0, 10.0, 15.0):
        await there.ask(ADMIN, "POST", "/v1/router", body={"router": "r1", "age_s": age_s})
    there.control.services.request_log._add_counts(unfinished=True)
    entries = [e for e in await entries_of(there.control) if e["verb"] == "post"]
    assert [e["annotations"] for e in entries] == [{"flowmesh.dev/count": "3"}]


async def test_refusals_of_one_user_are_counted_beyond_a_number(there: Tenants) -> None:
    for _ in range(REFUSALS_A_MINUTE + 5):
        await there.ask(ATTACKER, "GET", "/v1/workers", status=403)
    await there.ask(OWNER, "GET", "/v1/workers", status=403)
    there.control.services.request_log._add_counts(unfinished=True)
    entries = await entries_of(there.control)
    counted = [e for e in entries if "annotations" in e]
    assert len(entries) == REFUSALS_A_MINUTE + 2
    assert [e["annotations"] for e in counted] == [{"flowmesh.dev/count": "5"}]
    assert about(counted, "workers") == [(ATTACKER, "list", "", "", "", 403)]


DESTRUCTIVE: list[tuple[str, str, Any, str]] = [
    ("POST", "/v1/cache/purge", {"scope": "ns-team-a", "engine": "test.noop"}, "ns-team-a"),
    ("POST", "/v1/cache/gc", None, ""),
    ("PUT", "/v1/policies?only=1", [], ""),
    ("POST", "/v1/keys/retire", {"key_id": "07"}, "07"),
]


@pytest.mark.parametrize(("method", "path", "body", "name"), DESTRUCTIVE)
async def test_destructive_requests_are_stored_in_the_log_before_the_response(
    there: Tenants, method: str, path: str, body: Any, name: str
) -> None:
    status = 404 if "retire" in path else 200
    await there.ask(ADMIN, method, path, body=body, status=status)
    entries = await stored(there.control._bare_store)
    received = entries[0]
    assert received["stage"] == "RequestReceived"
    assert received["requestURI"] == path.partition("?")[0]
    assert received["user"] == {"username": ADMIN}
    complete = (await entries_of(there.control))[1]
    assert complete["auditID"] == received["auditID"]
    assert complete["responseStatus"]["code"] == status
    assert complete["objectRef"].get("name", "") == name
    if status == 200:
        assert len(entries) == 2


class Failing:
    """Lets the writes of a store fail, with this error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        write = MemoryRecords.write

        async def attempt(records: MemoryRecords, key: str, data: bytes, **more: Any) -> str:
            if self.error is not None and key.startswith("request-log/"):
                raise self.error
            return await write(records, key, data, **more)

        monkeypatch.setattr(MemoryRecords, "write", attempt)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(monkeypatch)


async def ask(there: Place, method: str, path: str, body: Any = None) -> int:
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    url = there.control.url + path
    async with there.http.request(method, url, json=body, headers=headers) as response:
        return response.status


async def results(there: Place) -> int:
    return len([key async for key in there.store.records.keys("actions/")])


async def run_once(there: Place) -> None:
    worker = await there.join("w")
    uid = await there.submit("one", noop())
    [assignment] = await worker.given()
    await worker.sync(ended=(end_of(assignment.attempt_id, assignment.action_id),))
    await there.ended(uid)


async def test_while_the_log_is_unwritable_destructive_requests_are_refused_and_work_continues(
    failing: Failing, by_hand: Place
) -> None:
    failing.error = StoreUnavailableError("gone", where="request-log")
    await run_once(by_hand)
    assert await results(by_hand) == 1
    for method, path, body, _ in DESTRUCTIVE:
        assert await ask(by_hand, method, path, body) == 503
    assert await results(by_hand) == 1
    assert "flowmesh_store_writes_failing 1.0" in (await by_hand.get("/metrics")).decode()
    failing.error = None
    assert await ask(by_hand, "POST", "/v1/cache/purge", {"scope": "ns-team-a"}) == 200
    assert await results(by_hand) == 0
    entries = await entries_of(by_hand.control)
    refused = [e for e in entries if e.get("responseStatus", {}).get("code") == 503]
    assert len(refused) == len(DESTRUCTIVE)
    metrics = (await by_hand.get("/metrics")).decode()
    assert f"flowmesh_request_log_entries_total {len(entries)}.0" in metrics
    assert "flowmesh_request_log_lost_total 0.0" in metrics
    assert "flowmesh_request_log_pending 0.0" in metrics


async def test_a_full_store_is_collected_although_the_log_cannot_be_written(
    failing: Failing, by_hand: Place
) -> None:
    failing.error = StoreFullError("full")
    assert await ask(by_hand, "POST", "/v1/cache/purge", {"scope": "ns-team-a"}) == 507
    assert await ask(by_hand, "POST", "/v1/cache/gc") == 200


async def test_worker_joins_refusals_and_protocol_violations_are_logged(
    by_hand: Place,
) -> None:
    worker = await by_hand.join("one")
    with pytest.raises(WSServerHandshakeError):
        await by_hand.join("two", token="wrong-token")
    await by_hand.join("one", shape={"name": "elsewhere"})
    end = end_of("not-its-attempt", "0" * 64)
    await worker.sync(ended=(end,))
    await by_hand.heard(lambda: by_hand.dropped)
    entries = await entries_of(by_hand.control)
    assert about(entries, "workers") == [
        ("flowmesh:worker:good-one", "connect", "", "", "good-one", 101),
        ("", "connect", "", "", "", 401),
        ("", "connect", "", "", "elsewhere", 403),
        ("flowmesh:worker:good-one", "update", "", "", "good-one", 400),
    ]
    assert entries[0]["user"]["groups"] == ["flowmesh:pool:good"]
    assert "the token is not valid for any pool" in entries[1]["responseStatus"]["message"]
    text = json.dumps(entries)
    assert "wrong-token" not in text
    assert TOKENS["good"] not in text


async def test_secrets_are_logged_by_name_hosts_and_attempt(by_hand: Place) -> None:
    log = by_hand.control.services.request_log
    hosts = {"key": ("api.example.com", "*.example.org")}
    FabricEvents(log).secrets_used("team-a", "attempt-1", "w1", hosts)
    [entry] = await entries_of(by_hand.control)
    assert about([entry], "secrets") == [
        ("flowmesh:control-plane", "get", "", "team-a", "key", 200)
    ]
    assert entry["annotations"] == {
        "flowmesh.dev/worker": "w1",
        "flowmesh.dev/attempt": "attempt-1",
        "flowmesh.dev/hosts": "api.example.com,*.example.org",
    }


async def test_entries_are_also_written_to_the_logger(
    by_hand: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="flowmesh.request_log"):
        await by_hand.submit("one", noop())
    [line] = [r.getMessage() for r in caplog.records if r.name == "flowmesh.request_log"]
    assert msgspec.json.decode(line)["objectRef"]["resource"] == "runs"


async def test_a_log_that_is_switched_off_writes_nothing(by_hand: Place) -> None:
    await by_hand.control.stop()
    off = replace(by_hand.control._settings, request_log=False)
    store = open_store("memory:")
    by_hand.control = control_on(store)
    by_hand.control._settings = off
    await by_hand.control.start()
    await by_hand.submit("one", noop())
    assert await ask(by_hand, "POST", "/v1/cache/purge", {"scope": "ns-team-a"}) == 200
    await by_hand.control.stop()
    assert await stored(store) == []


async def test_reads_alone_leave_no_segment(by_hand: Place) -> None:
    await by_hand.get("/v1/runs")
    await by_hand.control.stop()
    assert await log_keys(by_hand.store.records) == []
    assert await by_hand.store.records.read("keys/public") is None


async def test_a_stop_writes_what_is_in_memory(by_hand: Place) -> None:
    uid = await by_hand.submit("one", noop())
    await by_hand.get("/v1/runs")
    await by_hand.lead_anew()
    assert [name for *_, name, _ in about(await stored(by_hand.store), "runs")] == [uid, ""]


async def test_administrators_read_and_check_the_log(there: Tenants) -> None:
    policy = CachePolicy("shared", Sharing.GROUP, "g", ("team-a",))
    for _ in range(2):
        await there.ask(ADMIN, "PUT", "/v1/policies", body=[policy])
    body = {"document": workflow("mine", noop())}
    await there.ask(OWNER, "POST", "/v1/runs", body=body, status=201)
    await there.control.services.request_log.flush()
    for path in ("/v1/request-log", "/v1/request-log/check"):
        await there.ask(OWNER, "GET", path, status=403)
    page = await there.ask(ADMIN, "GET", "/v1/request-log")
    assert [e["verb"] for e in page["entries"]] == ["update"] * 4 + ["create"]
    assert page["is_last"]
    mine = await there.ask(ADMIN, "GET", f"/v1/request-log?user={OWNER}")
    assert [e["verb"] for e in mine["entries"]] == ["create"]
    named = await there.ask(ADMIN, "GET", "/v1/request-log?namespace=team-a")
    assert named["entries"] == mine["entries"]
    last = page["entries"][-1]["stageTimestamp"]
    since = await there.ask(ADMIN, "GET", f"/v1/request-log?since={last}")
    assert since["entries"] == mine["entries"]
    await there.ask(OWNER, "POST", "/v1/runs", body=body)
    await there.control.services.request_log.flush()
    more = await there.ask(ADMIN, "GET", f"/v1/request-log?after={page['next']}")
    assert about(more["entries"], "runs")[-1][:2] == (OWNER, "create")
    await there.ask(ADMIN, "GET", "/v1/request-log?after=nonsense", status=400)
    check = await there.ask(ADMIN, "GET", "/v1/request-log/check")
    assert (check["bad"], check["lost"]) == ("", 0)
    keys = await there.ask(ADMIN, "GET", "/v1/keys")
    assert [key["key_id"] for key in keys["public_keys"]] == ["00"]


async def test_a_client_that_leaves_during_a_change_is_logged(by_hand: Place) -> None:
    async with ClientSession() as http:
        url = f"{by_hand.control.url}/v1/datasets?namespace=team-a"
        headers = {"Authorization": f"Bearer {API_TOKEN}"}
        begun = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield b'{"a": 1}\n'
            begun.set()
            await asyncio.Event().wait()

        request = asyncio.create_task(http.post(url, data=body(), headers=headers).__aenter__())
        await begun.wait()
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    log = by_hand.control.services.request_log
    await by_hand.heard(lambda: log.pending or log.written)
    [entry] = await entries_of(by_hand.control)
    assert entry["responseStatus"]["code"] >= 400
