"""Attacker: T3. Action: ends of its own attempts with values that the protocol does not have: an
unknown kind of failure, numbers that are none, outputs that are not what they say.
Must not happen: the control plane ends, then or later; such an output is published; a run waits
for ever.
"""

import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import Place, end_of, place

from flowmesh_core.protocol.messages import AttemptEnd, FailureReport
from flowmesh_core.protocol.results import Artifact, Usage
from flowmesh_core.units import Digest

pytestmark = pytest.mark.slow

FALSE = Digest("f" * 64)


def usage(**values: Any) -> Callable[[AttemptEnd], AttemptEnd]:
    return changed(usage=Usage(**values))


def changed(**changes: Any) -> Callable[[AttemptEnd], AttemptEnd]:
    return lambda end: msgspec.structs.replace(end, **changes)


def failed(**report: Any) -> Callable[[AttemptEnd], AttemptEnd]:
    failure = FailureReport(**{"kind": "engine", "message": "what it says", **report})
    return changed(failure=failure, outputs={}, inline={})


def output(port: str = "metrics", **changes: Any) -> Callable[[AttemptEnd], AttemptEnd]:
    def change(end: AttemptEnd) -> AttemptEnd:
        made = msgspec.structs.replace(end.outputs["metrics"], **changes)
        return msgspec.structs.replace(end, outputs={port: made})

    return change


def as_dataset(end: AttemptEnd) -> AttemptEnd:
    made = end.outputs["metrics"]
    dataset = Artifact("dataset", made.digest, FALSE, 10, 3)
    return msgspec.structs.replace(end, outputs={"metrics": dataset})


CASES: list[tuple[str, Callable[[AttemptEnd], AttemptEnd]]] = [
    ("failure.kind", failed(kind="nonsense")),
    ("failure.kind", failed(kind="")),
    ("failure.retry_after_s", failed(retry_after_s=math.inf)),
    ("failure.retry_after_s", failed(retry_after_s=math.nan)),
    ("failure.retry_after_s", failed(retry_after_s=-1.0)),
    ("usage.run_s", usage(run_s=math.nan)),
    ("usage.run_s", usage(run_s=math.inf)),
    ("usage.load_s", usage(load_s=-1.0)),
    ("usage.joules", usage(joules=-math.inf)),
    ("usage.units", usage(units=-1)),
    ("usage.tokens_in", usage(tokens_in=2**64 - 1)),
    ("usage.peak_memory_mib", usage(peak_memory_mib=2**63)),
    ("usage.fetched_bytes", usage(fetched_bytes=-1)),
    ("usage.fetched_bytes", usage(fetched_bytes=2**62)),
    ("started_s", changed(started_s=math.nan)),
    ("ended_s", changed(ended_s=-1.0)),
    ("action_id", changed(action_id=FALSE)),
    ("libraries", changed(libraries={"x" * 5000: "1"})),
    ("inline", changed(inline={FALSE: b"something else"})),
    ("digest", output(digest="../../../etc/passwd")),
    ("blob", output(blob="/etc/passwd")),
    ("blob", output(blob=FALSE)),
    ("size_bytes", output(size_bytes=-1)),
    ("rows", output(rows=2**63)),
    ("kind", output(kind="nonsense")),
    ("value", output(value={"value": "another"})),
    ("value", output(value={"value": math.nan})),
    ("gave an output 'more'", output("more")),
    ("gave no output 'metrics'", changed(outputs={}, inline={})),
    ("of kind dataset instead of metrics", as_dataset),
]


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def test_a_malformed_end_fails_its_attempt_as_an_engine_error_that_names_the_field(
    there: Place,
) -> None:
    for n, (field, spoil) in enumerate(CASES):
        worker = await there.join(f"w{n}", incarnation=f"i{n}")
        step = {"name": "one", "uses": "test.noop", "with": {"value": n}, "retry": {"attempts": 1}}
        uid = await there.submit(f"run-{n}", {"steps": [step]})
        [assignment] = await worker.given()
        await worker.sync(ended=(spoil(end_of(assignment.attempt_id, assignment.action_id)),))
        status = await there.ended(uid)
        assert (status.phase, status.reason) == ("Failed", "engine"), field
        assert field in status.message, (field, status.message)
        await worker.sync(goodbye=True)
        await worker.close()
    assert await there.published() == []
    assert there.alive
    malformed = sum("gave" not in field and "of kind" not in field for field, _ in CASES)
    assert there.dropped == {"malformed": malformed}
    await there.lead_anew()
    honest = await there.join("honest")
    uid = await there.submit("honest", {"steps": [{"name": "one", "uses": "test.noop"}]})
    [assignment] = await honest.given()
    await honest.sync(ended=(end_of(assignment.attempt_id, assignment.action_id, None),))
    assert (await there.ended(uid)).phase == "Succeeded"


async def test_the_message_of_a_failure_of_unknown_kind_is_shown(there: Place) -> None:
    worker = await there.join("w")
    step = {"name": "one", "uses": "test.noop", "with": {"value": 1}, "retry": {"attempts": 1}}
    uid = await there.submit("run", {"steps": [step]})
    [assignment] = await worker.given()
    report = FailureReport("of-a-later-release", "the device caught fire")
    end = end_of(assignment.attempt_id, assignment.action_id, failure=report, outputs={})
    await worker.sync(ended=(end,))
    status = await there.ended(uid)
    assert "the device caught fire" in status.message
    assert "'of-a-later-release' is not a kind of failure" in status.message
