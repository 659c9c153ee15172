"""Attacker: T3, a worker with the token of an attempt of team-b, which reaches service and bucket.
Action: lists, reads, copies, overwrites and empties what is not of its scopes, with 30 requests.
Must not happen: it learns of, reads or changes any blob or record that the token does not name.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.attacks.by_hand import Place, noop, place
from tests.blob_views import blobs_of
from tests.flowmesh_control.fabric import KEY, workflow
from tests.flowmesh_store.versitygw import S3Server
from tests.served_bucket import HOLDER, attempt_token, s3_server, served
from yarl import URL

from flowmesh_core.protocol.attempt_grants import read_grant
from flowmesh_core.protocol.attempt_tokens import CONTEXT, AttemptTokens
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.units import Digest
from flowmesh_store.blob_service.views import open_blob_service
from flowmesh_store.hashing import digest_of
from flowmesh_store.s3.presigner import Presigner
from flowmesh_store.s3.signing_bucket import open_signing_bucket
from flowmesh_store.store import open_store

pytestmark = pytest.mark.slow

THEIRS, OWN = "ns-team-a", "ns-team-b"
SECRET, KNOWN = b"rows of team-a" * 100, b"rows of team-b" * 100
FOREIGN, STORED = digest_of(SECRET), digest_of(KNOWN)
FRESH = digest_of(b"fresh")


@dataclass
class Attack:
    """What a hostile worker has: a token, and the addresses of service and bucket."""

    http: aiohttp.ClientSession
    service: str
    bucket: str
    token: str

    async def post(self, path: str, body: Any, token: str | None = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        async with self.http.post(f"{self.service}/v1/{path}", json=body, headers=headers) as found:
            return found.status, orjson.loads(await found.read())

    async def url(self, method: str, scope: str, digest: str, size: int = 0) -> str:
        status, answer = await self.post("urls", {"requests": [[method, scope, digest, size]]})
        assert status == 200, answer
        return str(answer["urls"][0])

    async def send(self, method: str, url: str, data: bytes = b"", **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        target = URL(url, encoded=True)
        async with self.http.request(method, target, data=data, headers=named) as answer:
            content = await answer.read()
            assert SECRET not in content
            assert b"ListBucketResult" not in content
            return answer.status


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("k2")) as found:
        yield found


@pytest.fixture
def store_url(server: S3Server, tmp_path: Path) -> str:
    return server.url(tmp_path.name)


@asynccontextmanager
async def attack(store_url: str, tmp_path: Path) -> AsyncIterator[Attack]:
    """A worker of a real control plane that was assigned an attempt of team-b."""
    async with (
        place(store_url=store_url) as there,
        served(store_url, tmp_path) as bucket,
        aiohttp.ClientSession() as http,
    ):
        await blobs_of(there.store, THEIRS).put(FOREIGN, SECRET)
        await blobs_of(there.store, OWN).put(STORED, KNOWN)
        token = await assigned_token(there)
        assert read_grant(token).readable == (OWN,)
        plain = store_url.partition("endpoint=")[2].partition("&")[0] + "/fabric"
        yield Attack(http, bucket.url, plain, token)
        assert await blobs_of(there.store, THEIRS).get(FOREIGN) == SECRET
        assert await blobs_of(there.store, OWN).get(STORED) == KNOWN


async def assigned_token(there: Place) -> str:
    worker = await there.join("w1")
    body = {"document": workflow("w", noop(), "team-b")}
    headers = {"Authorization": "Bearer api-token"}
    async with there.http.post(f"{there.control.url}/v1/runs", json=body, headers=headers) as found:
        assert found.status == 201
    (one,) = await worker.given()
    return one.token


async def test_the_service_gives_nothing_outside_the_scopes_of_the_token(
    store_url: str, tmp_path: Path
) -> None:
    async with attack(store_url, tmp_path) as worker:
        wrong_scopes = (THEIRS, f"{OWN}/../{THEIRS}", "..", "", "*", "all", f"{OWN}\x00")
        for method in ("GET", "HEAD", "PUT"):
            for scope in wrong_scopes:
                status, _ = await worker.post("urls", {"requests": [[method, scope, FOREIGN, 4]]})
                assert status == 403, (method, scope)
        mixed = [["GET", OWN, STORED], ["GET", THEIRS, FOREIGN]]
        assert (await worker.post("urls", {"requests": mixed}))[0] == 403, "one of several"
        for path in ("copy", "discard"):
            status, _ = await worker.post(path, {"scope": THEIRS, "digest": FOREIGN})
            assert status == 403, path
        paths = ("../../../actions/ns-team-a/x", f"../../{THEIRS}/{FOREIGN[:2]}/{FOREIGN}", "")
        for digest in paths:
            for method in ("GET", "PUT"):
                status, _ = await worker.post("urls", {"requests": [[method, OWN, digest, 4]]})
                assert status == 400, digest
            status, _ = await worker.post("existing", {"digest": digest, "size_bytes": 4})
            assert status == 400, digest


async def test_a_foreign_digest_is_absent_from_the_own_scope(
    store_url: str, tmp_path: Path
) -> None:
    async with attack(store_url, tmp_path) as worker:
        for method in ("GET", "HEAD"):
            assert await worker.send(method, await worker.url(method, OWN, FOREIGN)) == 404
        copied = await worker.post("copy", {"scope": OWN, "digest": FOREIGN})
        assert copied == (200, {"found": False})


async def test_a_url_is_good_for_one_request_only(store_url: str, tmp_path: Path) -> None:
    async with attack(store_url, tmp_path) as worker:
        get = await worker.url("GET", OWN, STORED)
        own = f"cas/{OWN}/{STORED[:2]}/{STORED}"
        for key in (f"cas/{THEIRS}/{FOREIGN[:2]}/{FOREIGN}", "actions/ns-team-a/x", "keys/current"):
            for method in ("GET", "HEAD", "PUT", "DELETE"):
                assert await worker.send(method, get.replace(own, key), b"mine") == 403, key
        signature = get.partition("?")[2]
        for listing in (
            "/?list-type=2",
            "/?uploads",
            f"/?list-type=2&{signature}",
            f"/?{signature}",
        ):
            assert await worker.send("GET", worker.bucket + listing) == 403, listing
        assert await worker.send("DELETE", get) == 403
        put = await worker.url("PUT", OWN, FRESH, 5)
        assert await worker.send("PUT", put, b"fresh") == 403, "without the condition"
        assert await worker.send("PUT", put, b"freshly", If_None_Match="*") == 403, "longer"
        assert await worker.send("DELETE", put, If_None_Match="*") == 403
        assert await worker.send("PUT", put, b"fresh", If_None_Match="*") == 200, "as signed"


async def test_a_stored_blob_is_neither_overwritten_nor_emptied(
    store_url: str, tmp_path: Path
) -> None:
    async with attack(store_url, tmp_path) as worker:
        put = await worker.url("PUT", OWN, STORED, 5)
        assert await worker.send("PUT", put, b"wrong", If_None_Match="*") == 412
        existing = {"digest": STORED, "size_bytes": 5}  # another size than it has
        assert (await worker.post("existing", existing))[1]["stored"]
        assert (await worker.post("discard", {"scope": OWN, "digest": STORED}))[0] == 200
        assert (await worker.post("uploads", existing))[1]["stored"]
        late = digest_of(b"late")
        status, begun = await worker.post("uploads", {"digest": late, "size_bytes": 5})
        assert status == 200
        part = {"digest": late, "size_bytes": 5, "upload_id": begun["upload_id"], "first": 1}
        assert (await worker.post("uploads/parts", {**part, "digest": STORED}))[0] == 200
        for path in ("complete", "abort"):
            body = {"digest": STORED, "upload_id": begun["upload_id"], "etags": ['"x"']}
            await worker.post(f"uploads/{path}", body)


async def test_a_copy_never_replaces_a_stored_blob(store_url: str, tmp_path: Path) -> None:
    async with attack(store_url, tmp_path) as worker:
        in_group = Attack(worker.http, worker.service, worker.bucket, attempt_token("group-x"))
        put = await in_group.url("PUT", "group-x", STORED, 5)
        assert await worker.send("PUT", put, b"wrong", If_None_Match="*") == 200
        both = attempt_token(OWN, (OWN, "group-x"))
        body = {"scope": "group-x", "digest": STORED}
        assert await worker.post("copy", body, both) == (200, {"found": True})


async def test_tokens_that_are_old_foreign_altered_or_only_read_put_nothing(
    store_url: str, tmp_path: Path
) -> None:
    async with attack(store_url, tmp_path) as worker:
        reading = AttemptTokens(KEY.derive(CONTEXT)).issue_reading(
            HOLDER, read_scopes=(OWN,), issued_s=time.time()
        )
        invalid = {
            "none": "",
            "expired": attempt_token(OWN, (OWN,), age_s=9 * 86400),
            "of another key": attempt_token(OWN, (OWN,), ring=KeyRing.of(b"x" * 32)),
            "altered": worker.token[:20] + ("A" if worker.token[20] != "A" else "B")
            + worker.token[21:],
        }  # fmt: skip
        wanted = {"requests": [["GET", OWN, STORED]]}
        for name, token in invalid.items():
            assert (await worker.post("urls", wanted, token))[0] == 401, name
        assert (await worker.post("urls", wanted, reading))[0] == 200
        for scope in (OWN, "", THEIRS):
            put = {"requests": [["PUT", scope, FRESH, 5]]}
            assert (await worker.post("urls", put, reading))[0] == 403
        size = {"digest": FRESH, "size_bytes": 5}
        for path, body in (("existing", size), ("uploads", size), ("copy", {"scope": OWN, **size})):
            assert (await worker.post(path, body, reading))[0] == 403, path


async def test_a_url_ends_after_a_quarter_of_an_hour(store_url: str, tmp_path: Path) -> None:
    async with attack(store_url, tmp_path) as worker:
        bucket = await asyncio.to_thread(open_signing_bucket, store_url)
        old = Presigner(
            bucket.urls.presigner.address,
            bucket.urls.presigner.credentials,
            lambda: datetime.now(UTC) - timedelta(minutes=16),
        )
        url = old.url("GET", bucket.location.key(f"cas/{OWN}/{STORED[:2]}/{STORED}"))
        assert await worker.send("GET", url) == 403
        bucket.close()


async def test_its_rightful_reads_and_puts_work(store_url: str, tmp_path: Path) -> None:
    async with (
        attack(store_url, tmp_path) as worker,
        open_blob_service(worker.service, spool_dir=tmp_path) as views,
    ):
        own = views.view(write=OWN, read=(OWN,), token=worker.token)
        assert await own.get(STORED) == KNOWN
        large = bytes(20 << 20)
        for data in (b"small", large):
            await own.put(digest_of(data), data)
            assert await own.get(digest_of(data)) == data
            await own.put(digest_of(data), data)
        both = attempt_token("group-x", (OWN, "group-x"))
        group = views.view(write="group-x", read=(OWN, "group-x"), token=both)
        lost = Digest("0" * 64)
        assert await group.copy([STORED, lost]) == {lost}
        store = await asyncio.to_thread(open_store, store_url)
        assert await blobs_of(store, "group-x").get(STORED) == KNOWN
        store.close()
