"""Attacker: T3. Action: ends, claims and checkpoints of attempts that it was not given, with ids
that it saw or guessed, before and after a change of leader. Must not happen: a published record
names an attempt that the worker was not given; an action stops being ready because of it.
"""

from collections.abc import AsyncIterator

import pytest
from tests.attacks.by_hand import Place, end_of, holding, noop, place, until
from tests.flowmesh_control.fabric import machine_of

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import Assignment, Checkpoint, FailureReport, Welcome
from flowmesh_core.units import Digest

pytestmark = pytest.mark.slow


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


def bare(assignment: Assignment) -> str:
    """The machine's id of an attempt, which receipts, traces and logs show."""
    return assignment.attempt_id.rpartition(".")[0]


def forgeries(assignment: Assignment) -> list[str]:
    attempt_id = bare(assignment)
    scope_and_action, _, _ = attempt_id.rpartition("/")
    return [
        assignment.attempt_id,
        attempt_id,
        f"{attempt_id}.{'0' * 32}",
        f"{scope_and_action}/1-999",
        f"{scope_and_action}/1-999.{assignment.attempt_id.rpartition('.')[2]}",
    ]


async def test_no_worker_ends_an_attempt_of_another(there: Place) -> None:
    honest = await there.join("honest")
    uid = await there.submit("w", noop())
    [assignment] = await honest.given()
    for n, (name, pool) in enumerate([("thief", "low"), ("mate", "good")]):
        thief = await there.join(name, pool, shape={"engines": {}})
        forged = [end_of(i, assignment.action_id, "forged") for i in forgeries(assignment)]
        failure = FailureReport(FailureKind.BAD_INPUT, "forged")
        failed = [end_of(e.attempt_id, e.action_id, failure=failure, outputs={}) for e in forged]
        await thief.sync(ended=tuple(forged))
        await thief.sync(ended=tuple(failed[:4]))
        await there.heard(lambda n=n: there.dropped.get("attempt-id") == 9 * (n + 1))
        assert await there.published() == []
    await honest.sync(ended=(end_of(assignment.attempt_id, assignment.action_id, "made"),))
    status = await there.ended(uid)
    assert status.phase == "Succeeded"
    [result] = await there.published()
    assert result.provenance.worker == "honest"
    assert result.provenance.attempt_id == bare(assignment)
    assert result.outputs["metrics"].value == {"value": "made"}


async def test_nobody_seizes_an_action_that_is_ready(there: Place) -> None:
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


async def test_the_next_leader_believes_the_worker_that_was_given_the_attempt_and_no_other(
    there: Place,
) -> None:
    honest = await there.join("honest")
    uids = [await there.submit(f"w{n}", noop(f"v{n}")) for n in range(2)]
    held, ended = await honest.given(2)
    await there.lead_anew()

    ids = [i for a in (held, ended) for i in forgeries(a)]
    thief = await there.join(
        "thief",
        "low",
        shape={"engines": {}},
        attempts=holding(*ids),
        ended=tuple(end_of(i, held.action_id, "forged") for i in ids),
    )
    assert isinstance(thief.answer, Welcome)
    await there.heard(lambda: len(thief.acknowledged) == len(ids))
    assert thief.kept == []

    back = await there.join(
        "honest",
        attempts=holding(held.attempt_id),
        ended=(end_of(ended.attempt_id, ended.action_id, "ended before"),),
    )
    await until(lambda: back.kept == [held.attempt_id])
    await back.sync(ended=(end_of(held.attempt_id, held.action_id, "held before"),))
    assert [(await there.ended(uid)).phase for uid in uids] == ["Succeeded"] * 2
    made = {r.provenance.attempt_id: r.provenance.worker for r in await there.published()}
    assert made == {bare(held): "honest", bare(ended): "honest"}
    await until(lambda: {held.attempt_id, ended.attempt_id} <= set(back.acknowledged))


async def test_who_forges_much_is_disconnected_and_an_honest_worker_is_not(there: Place) -> None:
    honest = await there.join("honest")
    thief = await there.join("thief", "low", shape={"engines": {}})
    for n in range(20):
        await there.submit(f"w{n}", noop(f"v{n}"))
    told = await honest.given(20)
    forged = [end_of(f"{a.attempt_id}0", a.action_id) for a in told]
    await thief.sync(ended=tuple(forged[:9]))
    await there.heard(lambda: there.dropped == {"attempt-id": 9})
    assert not thief.closed
    await thief.sync(ended=tuple(forged[9:10]))
    await until(lambda: thief.closed)
    await honest.sync(ended=tuple(end_of(a.attempt_id, a.action_id) for a in told))
    await until(lambda: len(honest.acknowledged) == 20)
    assert not honest.closed
    assert there.dropped == {"attempt-id": 10}
