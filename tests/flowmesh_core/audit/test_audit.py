"""An audit makes a run's actions again in isolation, publishes nothing, and compares."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flowmesh_core.machine.world import (
    CALL,
    MAP,
    World,
    after,
    dataset,
    metrics,
    plan,
    rows_of,
    step,
)

from flowmesh_api.v1.audit import AuditCheck, AuditFinding, AuditOrder
from flowmesh_api.v1.enums import Verdict
from flowmesh_api.v1.why import AttemptLine
from flowmesh_core.accounting.ledger_lines import EXECUTED_OUTCOMES
from flowmesh_core.audit.plan import audit_path, audit_plan
from flowmesh_core.audit.reconstruct import ReproducibleAction, made_by
from flowmesh_core.audit.report import counts_of, findings_of
from flowmesh_core.audit.sampling import choose
from flowmesh_core.catalog.contract import Determinism
from flowmesh_core.errors import FailureKind
from flowmesh_core.graph.plan import Edge, StepSource
from flowmesh_core.machine import events as e
from flowmesh_core.machine.run_lifecycle import run_of
from flowmesh_core.protocol.results import Provenance
from flowmesh_core.sharing.scopes import ScopePlan, audit_scopes
from flowmesh_core.units import Digest

OF_THE_RUN = ScopePlan("group-x", ("ns-team-a", "group-x"), "ns-team-a")
AUDIT = "audit-of-w"


def audited() -> World:
    """A world in which ``u1`` has ended: rows that stream, a concatenation, a call outside."""
    world = World()
    world.join("w1")
    data = dataset("a", "b", "c")
    both = Edge(
        "rows", "dataset", (StepSource("one", "rows"), StepSource("two", "rows")), concatenate=True
    )
    steps = (
        step("one", rows_of(data), uses=MAP, value=1),
        step("two", rows_of("one"), uses=MAP, value=2),
        step("join", both, uses=MAP, value=3),
        step("call", *after("join"), uses=CALL),
        step("last", *after("join"), value=4),
    )
    world.submit(plan(*steps), "u1", artifacts=[data])
    return world.run()


def made_of(world: World, uid: str = "u1") -> list[ReproducibleAction]:
    """What is found of an ended run from its pins and its ledger alone."""
    run = world.ended_runs[uid]
    event = e.Submitted(
        uid,
        run.plan,
        run.created_s,
        run.scopes,
        run.artifacts,
        quarantine_salts=run.quarantine_salts,
    )
    return list(made_by(run_of(world.machine.state.catalog, event), run.lines))


def order_of(world: World, chosen: Sequence[ReproducibleAction]) -> AuditOrder:
    checks = tuple(_check(world, one) for one in chosen)
    return AuditOrder("u1", "w", "team-a", 1.0, 0, 0.0, len(chosen), checks, (), {})


def _check(world: World, one: ReproducibleAction) -> AuditCheck:
    result = world.cache["ns-team-a", one.action_id]
    return AuditCheck(
        path=audit_path(one),
        step=one.step.path,
        chunk=one.chunk,
        action_id=one.action_id,
        scope="ns-team-a",
        engine=one.step.engine,
        contract=1,
        implementation=1,
        determinism=one.determinism,
        signature_class=one.signature_class,
        fields={},
        outputs={p: a.digest for p, a in result.outputs.items()},
        published_by=result.provenance,
        published_s=result.created_s,
    )


def begin(world: World, chosen: Sequence[ReproducibleAction]) -> AuditOrder:
    made, artifacts = audit_plan("u1", world.ended_runs["u1"].plan, chosen)
    scopes = audit_scopes(AUDIT, OF_THE_RUN)
    world.apply(e.Submitted(AUDIT, made, world.now, scopes, artifacts))
    return order_of(world, chosen)


def found(world: World, order: AuditOrder) -> tuple[AuditFinding, ...]:
    return findings_of(order, world.ended_runs[AUDIT])


def test_the_actions_of_an_ended_run_are_found_under_their_published_names() -> None:
    world = audited()
    made = made_of(world)
    expected = {name for (_, name), r in world.cache.items() if r.provenance.attempt_id}
    assert {m.action_id for m in made} == expected
    assert [m.chunk for m in made if m.step.path == "two"] == [0, 1, 2]
    assert {m.determinism for m in made if m.step.path == "call"} == {Determinism.EXTERNAL}


def test_an_audit_runs_every_action_again_in_isolation_and_publishes_nothing() -> None:
    world = audited()
    stands, published = dict(world.cache), list(world.publications)
    chosen = choose([m for m in made_of(world) if m.determinism is Determinism.EXACT], 1.0, 0)
    order = begin(world, chosen)
    world.place()
    assert world.attempts()
    assert all(a.isolate for a in world.attempts())
    world.run()
    assert (world.cache, world.publications) == (stands, published)
    assert {f.verdict for f in found(world, order)} == {Verdict.SAME}
    assert counts_of(order, found(world, order))["same"] == len(chosen) > 8


def test_the_run_of_an_audit_pays_for_it_and_the_accounts_add_up() -> None:
    world = audited()
    before = world.machine.state.book.receipts_nanousd
    begin(world, made_of(world)[:2])
    world.run()
    run, book = world.ended_runs[AUDIT], world.machine.state.book
    assert run.paid_nanousd == book.receipts_nanousd - before > 0
    assert book.bill_nanousd == book.receipts_nanousd + book.fabric_nanousd
    lines = [la for la in run.lines if isinstance(la, AttemptLine)]
    assert {la.outcome for la in lines} == {"audited"} <= EXECUTED_OUTCOMES
    assert world.finals[AUDIT].audit_of == "u1"


def test_another_digest_is_a_difference_that_quarantines_an_exact_engine() -> None:
    world = audited()
    [one] = [m for m in made_of(world) if m.step.path == "last"]
    order = begin(world, [one])
    world.tick(0.5)
    [attempt] = world.attempts()
    world.finish(attempt.attempt_id, outputs={"metrics": metrics(value="another")})
    [finding] = found(world.run(), order)
    assert (finding.verdict, finding.ports, finding.quarantines) == (
        Verdict.DIFFERS,
        ("metrics",),
        True,
    )
    assert finding.again_by.worker == "w1"


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (FailureKind.BAD_INPUT, Verdict.FAILED),
        (FailureKind.USER_CODE, Verdict.FAILED),
        (FailureKind.MISSING_BLOB, Verdict.NOT_CHECKABLE),
    ],
)
def test_a_failed_attempt_is_distinguished_from_one_that_could_not_be_made(
    kind: FailureKind, verdict: Verdict
) -> None:
    world = audited()
    order = begin(world, [m for m in made_of(world) if m.step.path == "last"])
    world.tick(0.5)
    [attempt] = world.attempts()
    world.fail(attempt.attempt_id, kind, detail="0" * 64)
    [finding] = found(world.run(), order)
    assert finding.verdict is verdict
    assert not finding.quarantines


def test_a_cancelled_audit_reports_the_remaining_actions_as_not_checked() -> None:
    world = audited()
    order = begin(world, made_of(world)[:3])
    world.tick(0.5)
    world.finish(world.attempts()[0].attempt_id)
    world.apply(e.CancelRequested(AUDIT, "enough"))
    world.run()
    counts = counts_of(order, found(world, order))
    assert counts == {"same": 1, "differs": 0, "failed": 0, "not-checkable": 2}


def test_a_lost_worker_does_not_invalidate_an_audit() -> None:
    world = audited()
    order = begin(world, made_of(world)[:2])
    world.tick(0.5)
    world.lose("w1")
    world.now += 1.0
    world.join("w2")
    world.run()
    assert {f.verdict for f in found(world, order)} == {Verdict.SAME}


def test_an_equal_action_of_a_run_does_not_merge_with_an_audited_one() -> None:
    world = audited()
    world.cache.clear()
    world.publications.clear()
    run = world.ended_runs["u1"]
    made, artifacts = audit_plan("u1", run.plan, made_of(world)[:1])
    world.apply(e.Submitted(AUDIT, made, world.now, audit_scopes(AUDIT, OF_THE_RUN), artifacts))
    world.submit(run.plan, "u2", artifacts=run.artifacts.values())
    waiting = list(world.machine.state.actions)
    assert len({key.action_id for key in waiting}) == len(waiting) - 1
    world.run()
    assert world.finals["u2"].hits == 0


@pytest.mark.parametrize(
    ("changes", "quarantines"),
    [
        ({}, True),
        ({"worker": "elsewhere"}, True),
        ({"device_class": "gpu"}, False),
        ({"libraries": {"torch": "3"}}, False),
        ({"libraries": {"torch": "2", "trl": "1"}}, True),
    ],
)
def test_a_seeded_difference_between_unlike_machines_does_not_quarantine(
    changes: dict[str, object], quarantines: bool
) -> None:
    world = audited()
    [one] = [m for m in made_of(world) if m.step.path == "last"]
    order = begin(world, [replace(one, determinism=Determinism.SEEDED)])
    before = Provenance(worker="w1", device_class="cpu")
    check = msgspec.structs.replace(
        order.checks[0], published_by=msgspec.structs.replace(before, **changes)
    )
    order = msgspec.structs.replace(order, checks=(check,))
    world.tick(0.5)
    world.finish(
        world.attempts()[0].attempt_id,
        outputs={"metrics": metrics(value="another")},
        libraries={"torch": "2"},
    )
    [finding] = found(world.run(), order)
    assert (finding.verdict, finding.quarantines) == (Verdict.DIFFERS, quarantines)
    assert bool(finding.detail) is not quarantines


def fake(number: int) -> ReproducibleAction:
    name = Digest(f"{number:064x}")
    return ReproducibleAction(step("s"), number, {}, name, name, Determinism.EXACT)


@given(
    numbers=st.lists(st.integers(0, 50), min_size=1, max_size=80),
    share=st.floats(0.001, 1.0),
    seed=st.integers(0, 9),
)
def test_a_draw_has_the_requested_share_of_distinct_actions_and_depends_only_on_the_seed(
    numbers: list[int], share: float, seed: int
) -> None:
    made = [fake(n) for n in numbers]
    drawn = choose(made, share, seed)
    names = [m.action_id for m in drawn]
    assert len(names) == len(set(names)) >= 1
    assert len(names) <= share * len(set(numbers)) + 1
    assert {m.action_id for m in choose(made[::-1], share, seed)} == set(names)
    assert set(names) <= {m.action_id for m in choose(made, 1.0, seed)}


def test_another_seed_draws_others() -> None:
    made = [fake(n) for n in range(40)]
    draws = {tuple(m.chunk for m in choose(made, 0.1, seed)) for seed in range(8)}
    assert len(draws) > 4


def test_no_run_reads_the_scope_of_an_audit() -> None:
    scopes = audit_scopes("a", OF_THE_RUN)
    assert scopes == ScopePlan("audit-a", (), "audit-a", inputs=("ns-team-a", "group-x"))
    assert scopes.readable == ("audit-a", "ns-team-a", "group-x")
