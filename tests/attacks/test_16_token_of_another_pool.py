"""Attacker: T3. Action: joins as a worker of a pool that its token is not for.
Must not happen: it is welcomed, or given an action.
"""

from collections.abc import AsyncIterator

import pytest
from aiohttp import WSServerHandshakeError
from tests.attacks.by_hand import TOKENS, Place, noop, place

from flowmesh_core.protocol.messages import Refused, Welcome

pytestmark = pytest.mark.slow


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def test_a_token_admits_only_workers_of_its_own_pool(there: Place) -> None:
    await there.submit("w", noop())
    other = await there.join("w", "good", token=TOKENS["low"])
    assert isinstance(other.answer, Refused)
    assert other.answer.final
    for token in ("", "guess", TOKENS["good"] + "0", "*"):
        with pytest.raises(WSServerHandshakeError) as refused:
            await there.join("w", "good", token=token)
        assert refused.value.status == 401
    assert there.control.services.gateway.workers == []
    assert isinstance((await there.join("w", "good")).answer, Welcome)
    assert isinstance((await there.join("v", "low")).answer, Welcome)
