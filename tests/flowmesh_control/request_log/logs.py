"""A request log in memory, and what somebody with the bucket's credentials does to it."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.flowmesh_control.fabric import KEY, sealed

from flowmesh_api.v1.request_log import LogEntry, RequestLogCheck
from flowmesh_control.records.keys import REQUEST_LOG
from flowmesh_control.request_log.chain import ChainWriter
from flowmesh_control.request_log.entries import make_entry, make_reference, make_user
from flowmesh_control.request_log.public_keys import PublicKeys
from flowmesh_control.request_log.request_log import RequestLog
from flowmesh_control.request_log.segments import SegmentLink
from flowmesh_control.request_log.signatures import Signer
from flowmesh_control.request_log.verification import check_log, log_keys
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.ports import Records
from flowmesh_store.store import Store, open_store

NOON_S = 1_790_000_000.0


def entry(name: str = "a", user: str = "owner", **changes: Any) -> LogEntry:
    given = {
        "stage": "ResponseComplete",
        "verb": "create",
        "uri": "/v1/runs",
        "user": make_user(user),
        "received_s": NOON_S,
        "at_s": NOON_S,
        "about": make_reference("runs", namespace="team-a", name=name),
        "code": 201,
    }
    return make_entry(**{**given, **changes})


@dataclass
class Leader:
    """The request log of one leader."""

    store: Store
    epoch: int = 1
    ring: KeyRing = KEY
    records: Records | None = None
    now: list[float] = field(default_factory=lambda: [NOON_S])
    errors: list[FlowMeshError] = field(default_factory=list)

    def __post_init__(self) -> None:
        signer = Signer(self.ring)
        self.keys = PublicKeys(sealed(self.store), signer)
        self.chain = ChainWriter(
            self.records or self.store.records,
            signer,
            self.keys,
            epoch=self.epoch,
            clock=lambda: self.now[0],
        )
        self.log = RequestLog(
            self.chain, clock=lambda: self.now[0], flush_s=1.0, failed=self.errors.append
        )

    async def write(self, *names: str) -> None:
        """Writes a segment for each name."""
        for name in names:
            self.log.add(entry(name))
            await self.log.flush()

    async def check(self, last: SegmentLink | None = None) -> RequestLogCheck:
        return await check_log(self.store.records, await self.keys.all(), last=last)


async def three_epochs() -> Store:
    """A log of three leaders with three segments each."""
    store = open_store("memory:")
    for epoch in (1, 2, 3):
        await Leader(store, epoch).write("a", "b", "c")
    return store


async def put(store: Store, key: str, data: bytes) -> None:
    found = await store.records.read(key)
    await store.records.write(key, data, if_match=None if found is None else found.etag)


async def data_of(store: Store, key: str) -> bytes:
    record = await store.records.read(key)
    assert record is not None
    return record.data


async def remove(store: Store, key: str) -> None:
    assert await store.sweepable_records.delete(key, older_than_s=0.0)


async def names(store: Store) -> list[str]:
    """The names of the objects in all entries, in the order of the chain."""
    found = []
    for key in await log_keys(store.records):
        lines = (await data_of(store, key)).splitlines()[1:-1]
        found += [msgspec.json.decode(line)["objectRef"]["name"] for line in lines]
    return found


def key_of(epoch: int, seq: int, day: str = "2026-09-21") -> str:
    return f"{REQUEST_LOG}{day}/{epoch:08d}-{seq:08d}.jsonl"
