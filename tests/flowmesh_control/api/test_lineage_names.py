"""What lineage answers to the digest of bytes, which references show and lineage does not know."""

import pytest
from tests.attacks.by_hand import place


@pytest.mark.parametrize("name", ["7dca7c65", "7dca7c65" * 8])
async def test_an_unknown_digest_is_answered_with_where_the_right_one_is(name: str) -> None:
    async with place() as there:
        headers = {"Authorization": f"Bearer {there.token}"}
        url = f"{there.control.url}/v1/lineage/{name}"
        async with there.http.get(url, headers=headers) as answer:
            found = (await answer.json())["error"]
    assert answer.status == 404
    assert "`fmesh outputs RUN --json` shows as `digest`" in found["remedy"]
    assert "the one after `cas:` in a reference is that of the bytes" in found["remedy"]
