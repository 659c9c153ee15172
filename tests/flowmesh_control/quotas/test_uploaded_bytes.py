"""What a namespace uploads in a day, in a control plane without workers."""

from collections.abc import AsyncIterator

from tests.attacks.by_hand import Place, place

from flowmesh_api.v1.quotas import Quota

ROWS = b'{"text": "' + b"x" * 4000 + b'"}\n'


async def bound(there: Place, most: int) -> None:
    quota = Quota(name="q", namespaces=("team-b",), uploaded_bytes_per_day=most)
    await there.control.services.quotas.replace_all([quota], {"team-a": {}, "team-b": {}})


async def in_parts() -> AsyncIterator[bytes]:
    """A body without a Content-Length."""
    yield ROWS


async def upload(
    there: Place, namespace: str, body: bytes | AsyncIterator[bytes] = ROWS
) -> tuple[int, bytes, str]:
    url = f"{there.control.url}/v1/datasets?namespace={namespace}"
    headers = {"Authorization": "Bearer api-token"}
    async with there.http.post(url, data=body, headers=headers) as response:
        return response.status, await response.read(), response.headers.get("Retry-After", "")


async def test_beyond_the_day_s_bytes_it_says_when_to_try_again() -> None:
    async with place() as there:
        await bound(there, 2 * len(ROWS))
        assert [(await upload(there, "team-b"))[0] for _ in range(2)] == [201, 201]
        status, body, retry_after = await upload(there, "team-b")
        assert status == 429
        assert b"namespace team-b has uploaded 7.84 KiB in 24 hours, of at most 7.84 KiB" in body
        assert b"try again at " in body
        assert 24 * 3600 - 1 <= int(retry_after) <= 25 * 3600
        refusals = there.control.services.quotas.refusals
        assert refusals == {"uploaded-bytes-per-day": 1}
        assert (await upload(there, "team-a"))[0] == 201


async def test_a_body_without_a_length_is_stopped_on_the_way_and_counts() -> None:
    async with place() as there:
        await bound(there, len(ROWS) - 1)
        status, body, _ = await upload(there, "team-b", in_parts())
        assert status == 429
        assert b"has uploaded 3.92 KiB in 24 hours" in body
        assert there.control.services.uploaded.used("team-b") == len(ROWS)


async def test_an_upload_larger_than_a_day_is_refused_for_good() -> None:
    async with place() as there:
        await bound(there, len(ROWS) - 1)
        status, body, retry_after = await upload(there, "team-b")
        assert (status, retry_after) == (403, "")
        assert b"namespace team-b may upload 3.92 KiB in 24 hours" in body
        assert b"name it by an s3:// address" in body
        assert there.control.services.uploaded.used("team-b") == 0


async def test_a_new_leader_continues_the_day() -> None:
    async with place() as there:
        await bound(there, 2 * len(ROWS))
        await upload(there, "team-b")
        await there.lead_anew()
        assert there.control.services.uploaded.used("team-b") == len(ROWS)


async def test_without_a_quota_nothing_is_counted() -> None:
    async with place() as there:
        await upload(there, "team-b")
        assert there.control.services.uploaded.used("team-b") == 0
