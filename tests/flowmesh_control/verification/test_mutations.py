"""A verification fails at every change of a blob or record that an output rests on.

``FLOWMESH_LAW_EXAMPLES`` sets how many are tried, at most a thousand.
"""

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.flowmesh_control.fabric import Fabric, sealed, workflow

from flowmesh_api.v1.verification import VerificationReport
from flowmesh_control.verification.verification import OutputVerification
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.units import Digest
from flowmesh_store.memory import MemoryBlobs, MemoryContent, MemoryRecords
from flowmesh_store.ports import Record
from flowmesh_store.store import Store
from flowmesh_store.verified_blobs import VerifyingBlobs
from flowmesh_store.withheld_results import WithheldResults

pytestmark = pytest.mark.slow

MUTATIONS = min(1_000, int(os.environ.get("FLOWMESH_LAW_EXAMPLES", "100")))
CATALOG = load_catalog()
ROWS = [{"n": i, "word": f"w{i}" * 40} for i in range(40)]
FLOW: dict[str, Any] = {
    "inputs": {"numbers": {"rows": ROWS}},
    "steps": [
        {
            "name": "double",
            "uses": "data.sql",
            "inputs": {"rows": "inputs.numbers"},
            "with": {"query": "select n, word, n * 2 as twice from rows order by n"},
        },
        {
            "name": "map",
            "uses": "test.map",
            "inputs": {"rows": "double.rows"},
            "with": {"value": "x"},
        },
        {
            "name": "sum",
            "uses": "data.sql",
            "inputs": {"rows": "map.rows"},
            "with": {"query": "select count(*) as total from rows"},
        },
    ],
    "outputs": {"mapped": "map.rows", "total": "sum.rows", "count": "map.metrics"},
}

Place = str | tuple[str, Digest]
"""The key of a record, or scope and digest of a blob."""


class RecordingBlobs(dict[tuple[str, Digest], tuple[bytes, float]]):
    """Remembers which blobs were found."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[str, Digest]] = set()

    def get(self, key: Any, default: Any = None) -> Any:
        if key in self:
            self.found.add(key)
        return super().get(key, default)


class RecordingRecords(MemoryRecords):
    """Remembers which records were found."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    async def read(self, key: str) -> Record | None:
        record = await super().read(key)
        if record is not None:
            self.found.add(key)
        return record


class Copy:
    """A copy in memory of all that a control plane has stored."""

    def __init__(self) -> None:
        self.records = RecordingRecords()
        self.content = MemoryContent()
        self.blobs = RecordingBlobs()
        self.content.stored = self.blobs

    async def fill(self, store: Store) -> None:
        async for key in store.records.keys(""):
            record = await store.records.read(key)
            assert record is not None
            await self.records.write(key, record.data)
        async for blob in store.sweepable_blobs.blobs():
            view = store.view(write=blob.scope, read=(blob.scope,))
            self.blobs[blob.scope, blob.digest] = (await view.get(blob.digest), 0.0)

    @property
    def store(self) -> Store:
        def area(scope: str) -> VerifyingBlobs:
            blobs = MemoryBlobs(self.content, scope)
            return VerifyingBlobs(blobs, blobs)

        bare = Store("memory:", self.records, self.content, self.records, area)
        return Store("memory:", sealed(bare), self.content, self.records, area)

    def read(self, place: Place) -> bytes:
        if isinstance(place, str):
            return self.records._records[place][0].data
        return self.blobs[place][0]

    def write(self, place: Place, data: bytes | None) -> None:
        if isinstance(place, str):
            if data is None:
                del self.records._records[place]
            else:
                self.records._records[place] = (Record(data, "1"), 0.0)
        elif data is None:
            del self.blobs[place]
        else:
            self.blobs[place] = (data, 0.0)


async def verified(copy: Copy, uid: str, output: str = "") -> VerificationReport:
    verification = OutputVerification(copy.store, CATALOG, WithheldResults())
    return await verification.verify(uid, output)


def mutations(copy: Copy, places: list[Place], rng: random.Random) -> Iterator[tuple[Place, Any]]:
    """Yields random places with other content; None deletes it."""
    for _ in range(MUTATIONS):
        place = rng.choice(places)
        data = copy.read(place)
        match rng.randrange(5):
            case 0 if data:
                at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
                yield place, data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
            case 1 if data:
                yield place, data[: rng.randrange(len(data))]
            case 2:
                yield place, data + rng.randbytes(rng.randint(1, 20))
            case 3:
                others = [p for p in places if type(p) is type(place) and copy.read(p) != data]
                yield place, copy.read(rng.choice(others))
            case _:
                yield place, None


async def test_each_random_mutation_is_found(fabric: Fabric) -> None:
    fabric.worker("local-1")
    uid = await fabric.submit(workflow("chain", FLOW))
    assert (await fabric.ended(uid)).phase == "Succeeded"
    copy = Copy()
    await copy.fill(fabric.control._bare_store)
    report = await verified(copy, uid)
    assert report.broken is None, report.broken
    assert (report.outputs, report.steps, report.given) == (("mapped", "total", "count"), 3, 1)

    places: list[Place] = [*sorted(copy.records.found), *sorted(copy.blobs.found)]
    assert report.records > len(report.outputs)
    unnoticed = []
    for place, data in mutations(copy, places, random.Random(20_261_124)):
        before = copy.read(place)
        copy.write(place, data)
        found = await verified(copy, uid)
        if found.broken is None:
            unnoticed.append((place, before, data))
        copy.write(place, before)
    assert unnoticed == []
    assert (await verified(copy, uid)).broken is None
