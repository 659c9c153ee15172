"""Attacker: T3. Action: ends, claims and checkpoints of attempts that it was not given, with ids
that it saw or guessed, before and after a change of leader. Must not happen: a published record
names an attempt that the worker was not given; an action stops being ready because of it.
"""

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.attacks.by_hand import Place, end_of, holding, noop, place, until
from tests.flowmesh_control.fabric import machine_of

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptProgress,
    Checkpoint,
    FailureReport,
    Welcome,
)
from flowmesh_core.units import Digest

pytestmark = pytest.mark.slow


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


def forgeries(assignment: Assignment) -> list[tuple[str, str]]:
    """Ids and tokens that a worker may show which saw another one's assignment."""
    attempt_id, token = assignment.attempt_id, assignment.token
    scope_and_action, _, _ = attempt_id.rpartition("/")
    flipped = token[:40] + ("A" if token[40] != "A" else "B") + token[41:]
    return [
        (attempt_id, token),
        (attempt_id, ""),
        (attempt_id, flipped),
        (f"{scope_and_action}/1-999", ""),
        (f"{scope_and_action}/1-999", token),
    ]


async def test_no_worker_ends_an_attempt_of_another(there: Place) -> None:
    honest = await there.join("honest")
    uid = await there.submit("w", noop())
    [assignment] = await honest.given()
    for n, (name, pool) in enumerate([("thief", "low"), ("mate", "good")]):
        thief = await there.join(name, pool, shape={"engines": {}})
        forged = [
            end_of(i, assignment.action_id, "forged", token=t) for i, t in forgeries(assignment)
        ]
        failure = FailureReport(FailureKind.BAD_INPUT, "forged")
        failed = [msgspec.structs.replace(e, failure=failure, outputs={}) for e in forged]
        await thief.sync(ended=tuple(forged))
        await thief.sync(ended=tuple(failed[:4]))
        await there.heard(lambda n=n: there.dropped.get("attempt-id") == 9 * (n + 1))
        assert await there.published() == []
    await honest.sync(ended=(end_of(assignment.attempt_id, assignment.action_id, "made"),))
    status = await there.ended(uid)
    assert status.phase == "Succeeded"
    [result] = await there.published()
    assert result.provenance.worker == "good-honest"
    assert result.provenance.attempt_id == assignment.attempt_id
    assert result.outputs["metrics"].value == {"value": "made"}


async def test_a_worker_cannot_claim_a_ready_action_that_it_was_not_assigned(there: Place) -> None:
    uid = await there.submit("w", noop())
    state = machine_of(there.control).state
    await until(lambda: [a.state for a in state.actions.values()] == ["ready"])
    [key] = state.actions
    guessed = [f"{key.scope}/{key.action_id}/1-{n}" for n in range(3)]
    # It offers no engine, so that it is not given the action.
    thief = await there.join(
        "thief",
        "low",
        shape={"engines": {}},
        attempts=holding(*guessed),
        ended=tuple(end_of(i, key.action_id, "forged") for i in guessed),
        checkpoints=tuple(Checkpoint(i, Digest("a" * 64), 0.5) for i in guessed),
    )
    await there.heard(lambda: thief.acknowledged)
    assert [a.state for a in state.actions.values()] == ["ready"]
    assert [a.checkpoint for a in state.actions.values()] == [None]
    assert thief.kept == []
    assert there.dropped == {"attempt-id": 9}
    honest = await there.join("honest")
    [assignment] = await honest.given()
    await honest.sync(ended=(end_of(assignment.attempt_id, assignment.action_id),))
    assert (await there.ended(uid)).phase == "Succeeded"


async def test_the_next_leader_accepts_an_end_only_from_the_worker_that_was_assigned_the_attempt(
    there: Place,
) -> None:
    honest = await there.join("honest")
    uids = [await there.submit(f"w{n}", noop(f"v{n}")) for n in range(2)]
    held, ended = await honest.given(2)
    await there.lead_anew()

    shown = [pair for a in (held, ended) for pair in forgeries(a)]
    thief = await there.join(
        "thief",
        "low",
        shape={"engines": {}},
        attempts=tuple(AttemptProgress(i, "running", token=t) for i, t in shown),
        ended=tuple(end_of(i, held.action_id, "forged", token=t) for i, t in shown),
    )
    assert isinstance(thief.answer, Welcome)
    await there.heard(lambda: len(thief.acknowledged) == len(shown))
    assert thief.kept == []

    back = await there.join(
        "honest",
        attempts=holding(held.attempt_id, token=held.token),
        ended=(end_of(ended.attempt_id, ended.action_id, "ended before", token=ended.token),),
    )
    await until(lambda: back.kept == [held.attempt_id])
    await back.sync(ended=(end_of(held.attempt_id, held.action_id, "held before"),))
    assert [(await there.ended(uid)).phase for uid in uids] == ["Succeeded"] * 2
    made = {r.provenance.attempt_id: r.provenance.worker for r in await there.published()}
    assert made == {held.attempt_id: "good-honest", ended.attempt_id: "good-honest"}
    await until(lambda: {held.attempt_id, ended.attempt_id} <= set(back.acknowledged))


async def test_a_worker_that_forges_many_ends_is_disconnected_and_an_honest_one_is_not(
    there: Place,
) -> None:
    honest = await there.join("honest")
    thief = await there.join("thief", "low", shape={"engines": {}})
    for n in range(20):
        await there.submit(f"w{n}", noop(f"v{n}"))
    told = await honest.given(20)
    forged = [end_of(a.attempt_id, a.action_id, token=a.token) for a in told]
    await thief.sync(ended=tuple(forged[:9]))
    await there.heard(lambda: there.dropped == {"attempt-id": 9})
    assert not thief.closed
    await thief.sync(ended=tuple(forged[9:10]))
    await until(lambda: thief.closed)
    await honest.sync(ended=tuple(end_of(a.attempt_id, a.action_id) for a in told))
    await until(lambda: len(honest.acknowledged) == 20)
    assert not honest.closed
    assert there.dropped == {"attempt-id": 10}


async def test_a_restarted_worker_process_cannot_claim_attempts_of_its_predecessor(
    there: Place,
) -> None:
    honest = await there.join("honest")
    uid = await there.submit("w", noop())
    [assignment] = await honest.given()
    await there.lead_anew()
    for incarnation, admitted in (("another process", False), ("process of honest", True)):
        back = await there.join(
            "honest",
            incarnation=incarnation,
            shape={"engines": {}} if not admitted else {},
            attempts=holding(assignment.attempt_id, token=assignment.token),
        )
        if not admitted:
            await there.heard(lambda: there.dropped == {"attempt-id": 1})
            assert there.alive
            await back.sync(goodbye=True)
            await until(lambda w=back: w.closed)
        else:
            await until(lambda w=back: w.kept == [assignment.attempt_id])
    await back.sync(ended=(end_of(assignment.attempt_id, assignment.action_id),))
    assert (await there.ended(uid)).phase == "Succeeded"


async def test_a_worker_cannot_turn_its_failed_attempt_into_a_success(there: Place) -> None:
    """The token is its own and valid, but the attempt is over and the action is ready again."""
    worker = await there.join("worker")
    uid = await there.submit("w", noop())
    [assignment] = await worker.given()
    state = machine_of(there.control).state
    failure = FailureReport(FailureKind.DRAINED, "it is to leave")
    end = end_of(assignment.attempt_id, assignment.action_id, token=assignment.token)
    # It drains, so that the action stays ready.
    await worker.sync(ended=(msgspec.structs.replace(end, failure=failure),), draining=True)
    await until(lambda: [a.state for a in state.actions.values()] == ["ready"])
    before = len(worker.acknowledged)
    await worker.sync(ended=(end,), draining=True)
    await there.heard(lambda: len(worker.acknowledged) > before)
    assert [a.state for a in state.actions.values()] == ["ready"]
    assert await there.published() == []
    honest = await there.join("honest")
    [other] = await honest.given()
    await honest.sync(ended=(end_of(other.attempt_id, other.action_id),))
    assert (await there.ended(uid)).phase == "Succeeded"
