"""Attacker: T3. Action: names paths where the digests of lost or spoiled blobs stand, which the
control plane fetches and removes.
Must not happen: the control plane ends; a path is asked of the store, or made of it and removed.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import Place, end_of, noop, place, until
from tests.blob_views import blobs_of

from flowmesh_core.protocol.messages import Checkpoint, FailureReport
from flowmesh_core.units import Digest

pytestmark = pytest.mark.slow


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def test_a_value_that_is_not_a_digest_is_never_fetched(
    there: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("still here")
    fetched: list[str] = []
    blobs = blobs_of(there.control.services.store)
    fetch = blobs.fetch

    async def watched(digest: Digest, target: Path) -> Any:
        fetched.append(digest)
        return await fetch(digest, target)

    monkeypatch.setattr(type(blobs), "fetch", staticmethod(watched))
    uid = await there.submit("run", noop())
    worker = await there.join("w")
    [assignment] = await worker.given()
    paths = [str(victim), "../../victim", "..", ""]
    lost = Digest("f" * 64)
    for path in paths:
        spoiled = (Digest(path),)
        report = Checkpoint(assignment.attempt_id, lost, 0.5, 1, spoiled)
        await worker.sync(checkpoints=(report,))
    report = msgspec.structs.replace(report, spoiled=(lost,))
    await worker.sync(checkpoints=(report,))
    await until(lambda: fetched == [lost])
    failure = FailureReport("missing-blob", "an input is lost", detail=" ".join(paths))
    end = end_of(assignment.attempt_id, assignment.action_id, failure=failure, outputs={})
    await worker.sync(ended=(end,))
    status = await there.ended(uid)
    assert (status.phase, status.reason) == ("Failed", "missing-blob")
    assert fetched == [lost]
    assert victim.read_text() == "still here"
    assert there.dropped == {"malformed": 4}
