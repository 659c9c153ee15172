"""Attacker: T3. Action: attempt ids that are none, in every place of a message that has one.
Must not happen: the control plane ends, then or at a later start; another worker's message is lost.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.attacks.by_hand import Place, end_of, holding, noop, place, until

from flowmesh_core.protocol.messages import AttemptProgress, Checkpoint, LogLine, Welcome
from flowmesh_core.units import Digest

pytestmark = pytest.mark.slow

DIGEST = Digest("a" * 64)
MALFORMED = [
    "",
    "x",
    "/",
    "//",
    "///",
    "a/b",
    "a/b/c",
    "a/b/c/d",
    ".",
    "a/b/c.",
    f".{'0' * 32}",
    f"ns-x/{DIGEST}/1-1",
    f"ns-x/{DIGEST}/1-1.{'0' * 32}",
    f"ns-x/{DIGEST}/-.{'é' * 32}",
    "\0/\0/\0",
    "../../etc/passwd",
    "x" * 100_000,
]


def everywhere(attempt_id: str) -> list[dict[str, Any]]:
    return [
        {"progress": (AttemptProgress(attempt_id, "running"),)},
        {"ended": (end_of(attempt_id, DIGEST),)},
        {"checkpoints": (Checkpoint(attempt_id, DIGEST, 0.5),)},
        {"checkpoints": (Checkpoint(attempt_id, DIGEST, 0.5, 1, (DIGEST,)),)},
        {"logs": (LogLine(attempt_id, 1.0, "a line"),)},
    ]


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def test_malformed_ids_are_dropped_and_counted_and_the_control_plane_keeps_running(
    there: Place,
) -> None:
    honest = await there.join("honest")
    uid = await there.submit("w", noop())
    [assignment] = await honest.given()
    count = 0
    for n, attempt_id in enumerate(MALFORMED):
        worker = await there.join(f"w{n}", "low", shape={"engines": {}})
        for changes in everywhere(attempt_id):
            await worker.sync(**changes)
            count += 1
    await there.heard(lambda: sum(there.dropped.values()) == count)
    assert there.dropped == {"attempt-id": count}
    assert there.alive
    await honest.sync(ended=(end_of(assignment.attempt_id, assignment.action_id),))
    assert (await there.ended(uid)).phase == "Succeeded"


async def test_malformed_ids_in_a_hello_stop_neither_this_leader_nor_the_next(
    there: Place,
) -> None:
    changes = {
        "attempts": holding(*MALFORMED),
        "ended": tuple(end_of(i, DIGEST) for i in MALFORMED),
        "checkpoints": tuple(Checkpoint(i, DIGEST, 0.5) for i in MALFORMED),
    }
    uid = await there.submit("w", noop())
    for _ in range(2):
        worker = await there.join("odd", "low", shape={"engines": {}}, **changes)
        assert isinstance(worker.answer, Welcome)
        # An honest worker of a control plane with another key must not repeat its ends for ever.
        await until(lambda w=worker: set(w.acknowledged) == set(MALFORMED))
        assert there.dropped == {"attempt-id": 3 * len(MALFORMED)}
        assert there.alive
        await there.lead_anew()
    honest = await there.join("honest")
    [assignment] = await honest.given()
    await honest.sync(ended=(end_of(assignment.attempt_id, assignment.action_id),))
    assert (await there.ended(uid)).phase == "Succeeded"
