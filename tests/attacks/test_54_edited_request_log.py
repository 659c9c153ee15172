"""Attacker: T7. Action: edits, cuts, swaps, forges and removes segments of the request log in the
bucket, to hide what it did. Must not happen: a check calls the log valid, or names nothing; the
control plane stops logging.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
from tests.attacks.by_hand import Place, noop, place
from tests.flowmesh_control.request_log.logs import data_of, put, remove

from flowmesh_api.v1.request_log import RequestLogCheck
from flowmesh_control.records.keys import PUBLIC_KEYS, REQUEST_LOG_BEGINNING
from flowmesh_control.request_log.segments import PAYLOAD_TYPE
from flowmesh_control.request_log.signatures import Signer
from flowmesh_control.request_log.verification import log_keys
from flowmesh_core.decoding import decode
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.store import Store

OWN = Signer(KeyRing.of(b"a key of the attacker's own......"))


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def checked(there: Place) -> RequestLogCheck:
    data = await there.get("/v1/request-log/check")
    return decode(msgspec.json.Decoder(RequestLogCheck), data)


async def write_segments(there: Place, count: int = 4) -> list[str]:
    """Lets the control plane write segments; returns their keys."""
    for n in range(count):
        await there.submit(f"run-{n}", noop(str(n)))
        await there.control.services.request_log.flush()
    return await log_keys(there.store.records)


async def edit(store: Store, keys: list[str]) -> str:
    data = await data_of(store, keys[1])
    await put(store, keys[1], data.replace(b'"owner"', b'"alice"'))
    return keys[1]


async def cut_a_line(store: Store, keys: list[str]) -> str:
    lines = (await data_of(store, keys[1])).splitlines(keepends=True)
    await put(store, keys[1], lines[0] + lines[-1])
    return keys[1]


async def cut_the_end(store: Store, keys: list[str]) -> str:
    await put(store, keys[1], (await data_of(store, keys[1]))[:-10])
    return keys[1]


async def empty(store: Store, keys: list[str]) -> str:
    await put(store, keys[1], b"")
    return keys[1]


async def sign_again(store: Store, keys: list[str]) -> str:
    lines = (await data_of(store, keys[1])).splitlines(keepends=True)
    await put(store, keys[1], OWN.sign(lines[0], PAYLOAD_TYPE))
    return keys[1]


async def sign_again_and_add_the_key(store: Store, keys: list[str]) -> str:
    await put(store, PUBLIC_KEYS, json.dumps([OWN.public_keys()[0].key]).encode())
    return await sign_again(store, keys)


async def swap(store: Store, keys: list[str]) -> str:
    one, other = await data_of(store, keys[1]), await data_of(store, keys[2])
    await put(store, keys[1], other)
    await put(store, keys[2], one)
    return keys[1]


async def remove_the_first(store: Store, keys: list[str]) -> str:
    await remove(store, keys[0])
    return keys[0]


async def remove_one(store: Store, keys: list[str]) -> str:
    await remove(store, keys[1])
    return keys[1]


async def remove_the_last(store: Store, keys: list[str]) -> str:
    await remove(store, keys[-1])
    return keys[-1]


async def remove_the_last_two(store: Store, keys: list[str]) -> str:
    await remove(store, keys[-1])
    await remove(store, keys[-2])
    return keys[-1]


async def remove_all(store: Store, keys: list[str]) -> str:
    for key in keys:
        await remove(store, key)
    return keys[-1]


async def remove_the_first_and_state_a_beginning(store: Store, keys: list[str]) -> str:
    await remove(store, keys[0])
    await put(store, REQUEST_LOG_BEGINNING, OWN.sign(b"{}\n", PAYLOAD_TYPE))
    return REQUEST_LOG_BEGINNING


async def plant_the_next(store: Store, keys: list[str]) -> str:
    key = keys[-1].replace("-00000004.", "-00000005.")
    assert key != keys[-1]
    await put(store, key, b"planted")
    return key


ATTACKS = (
    edit,
    cut_a_line,
    cut_the_end,
    empty,
    sign_again,
    sign_again_and_add_the_key,
    swap,
    remove_the_first,
    remove_one,
    remove_the_last,
    remove_the_last_two,
    remove_all,
    remove_the_first_and_state_a_beginning,
    plant_the_next,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_a_changed_request_log_is_detected_and_logging_continues(
    there: Place, attack: Callable[[Store, list[str]], Awaitable[str]]
) -> None:
    keys = await write_segments(there)
    before = await checked(there)
    assert (before.bad, before.segments) == ("", len(keys))  # the control
    expected = await attack(there.store, keys)
    found = await checked(there)
    assert found.bad == expected
    assert found.reason
    log = there.control.services.request_log
    written = log.written
    await there.submit("after", noop("after"))
    await log.flush()
    assert log.written > written
    assert (await checked(there)).bad
