"""Law: whoever else is subscribed, a subscription ends as it would have ended alone, or better.

It completes with the outputs that it has alone, or it fails for a reason that attempts on workers
that meet its own requirement gave it while it was subscribed. The reasons are worked out here from
what the test did, without the machine's own counts. No result of a pool that is trusted less than a
subscription or a scope asks for completes the one or is stored in the other.
``FLOWMESH_LAW_EXAMPLES`` sets how many runs are tried.
"""

import os
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.flowmesh_core.machine.world import World, metrics, plan, shape, step

from flowmesh_core.graph.plan import Cache, Plan, Resources
from flowmesh_core.machine.events import CancelRequested, WorkerTrustChanged
from flowmesh_core.machine.settings import Settings
from flowmesh_core.protocol.messages import WorkerShape

EXAMPLES = int(os.environ.get("FLOWMESH_LAW_EXAMPLES", "200"))
PATIENCE_S = 5.0
SHAPES = (
    {},
    {"labels": {"zone": "a"}},
    {"labels": {"rack": "7"}},
    {"device_memory_mib": 16384},
    {"trust": 1},
    {"trust": 0},
)
GROUP_TRUST = 1
RESOURCES = (
    Resources(),
    Resources(labels={"zone": "a"}),
    Resources(labels={"rack": "7"}),
    Resources(anti_labels={"zone": "a"}),
    Resources(memory_mib=8192),
    Resources(memory_mib=900 * 1024),
)
KINDS = ("engine", "bad-input", "host-crashed", "out-of-memory", "preempted")


def met(resources: Resources, worker: WorkerShape) -> bool:
    """Whether a step with these resources could run there."""
    labels = worker.labels
    return (
        resources.memory_mib <= worker.device_memory_mib
        and all(labels.get(k) == v for k, v in resources.labels.items())
        and all(labels.get(k) != v for k, v in resources.anti_labels.items())
    )


@dataclass
class Tenant:
    """What a tenant wants, and what has happened to attempts that count for it."""

    made: Plan
    since_s: float
    cancelled: bool = False
    failures: dict[str, int] = field(default_factory=dict)
    ran_s: float = 0.0

    @property
    def resources(self) -> Resources:
        return self.made.steps[0].resources

    @property
    def min_trust(self) -> int:
        return max(GROUP_TRUST, self.made.min_trust)

    def met(self, worker: WorkerShape) -> bool:
        """Whether its step could run there."""
        return met(self.resources, worker) and worker.trust >= self.min_trust

    def explains(self, reason: str, fleet: list[WorkerShape]) -> bool:
        """Whether its own settings, or the work where it may run, account for a failure."""
        own, seen = self.made.steps[0], self.failures
        losses = seen.get("host-crashed", 0) + seen.get("lost", 0)
        explained = {
            "engine": seen.get("engine", 0) >= own.retry.attempts,
            "bad-input": seen.get("bad-input", 0) > 0,
            "poison": losses >= Settings().poison_losses,
            "out-of-memory": seen.get("out-of-memory", 0) > 0,
            "timeout": bool(own.timeout_s) and self.ran_s >= own.timeout_s - 0.01,
            "budget": self.made.budget_nanousd > 0,
            "unplaceable": not any(map(self.met, fleet)),
        }
        return explained.get(reason, False)


class Company(RuleBasedStateMachine):
    """Tenants of one group that want the same work, on workers that do anything."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(settings=Settings(watchdog_s=1e9, unplaceable_after_s=PATIENCE_S))
        self.tenants: dict[str, Tenant] = {}
        self.begun_s: dict[str, float] = {}
        self.joined = 0
        self.seen: set[str] = set()
        self.world.join("first", trust=GROUP_TRUST)

    # -- what the test knows ---------------------------------------------------------------------

    def subscribed(self) -> list[Tenant]:
        return [t for uid, t in self.tenants.items() if uid not in self.world.finals]

    def counting(self, attempt_id: str) -> list[Tenant]:
        """The subscribed tenants that might have had this attempt alone."""
        attempt = self.world.machine.state.attempts[attempt_id]
        return [
            t
            for t in self.subscribed()
            if t.met(attempt.shape) and attempt.memory_mib >= t.resources.memory_mib
        ]

    def count(self, attempt_id: str, kind: str) -> None:
        for tenant in self.counting(attempt_id):
            tenant.failures[kind] = tenant.failures.get(kind, 0) + 1

    def fleet(self) -> list[WorkerShape]:
        return [w.shape for w in self.world.machine.state.workers.values()]

    # -- what may happen -------------------------------------------------------------------------

    @rule(
        timeout_s=st.sampled_from((0.0, 0.0, 2.0, 6.0)),
        attempts=st.integers(1, 3),
        resources=st.sampled_from(RESOURCES),
        max_age_s=st.sampled_from((0.0, 0.0, 5.0)),
        budget_nanousd=st.sampled_from((0, 0, 0, 10, 10**9)),
        priority=st.integers(0, 2),
        min_trust=st.sampled_from((0, 2)),
    )
    def submit(
        self,
        timeout_s: float,
        attempts: int,
        resources: Resources,
        max_age_s: float,
        budget_nanousd: int,
        priority: int,
        min_trust: int,
    ) -> None:
        own = step(
            "a",
            timeout_s=timeout_s,
            attempts=attempts,
            resources=resources,
            cache=Cache(max_age_s=max_age_s),
        )
        uid = f"t{len(self.tenants)}"
        made = plan(
            own,
            namespace=uid,
            budget_nanousd=budget_nanousd,
            priority=priority,
            min_trust=min_trust,
        )
        self.tenants[uid] = Tenant(made, self.world.now)
        self.world.submit(made, uid, share="group-x", min_trust=GROUP_TRUST)

    @rule(changes=st.sampled_from(SHAPES))
    @precondition(lambda self: len(self.world.machine.state.workers) < 4)
    def join(self, changes: dict[str, object]) -> None:
        self.joined += 1
        self.world.join(f"w{self.joined}", **changes)

    @rule(data=st.data(), trust=st.integers(0, 3))
    def change_trust(self, data: st.DataObject, trust: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.machine.state.workers)))
        self.world.apply(WorkerTrustChanged(name, self.world.incarnations[name], trust))

    @rule(seconds=st.sampled_from((0.1, 0.25, 1.0, 2.5)))
    def wait(self, seconds: float) -> None:
        # Seen before the time passes, since the timeouts of this time end subscriptions.
        for attempt_id, since_s in self.begun_s.items():
            if attempt_id in self.world.machine.state.attempts:
                for tenant in self.counting(attempt_id):
                    ran_s = self.world.now + seconds - max(since_s, tenant.since_s)
                    tenant.ran_s = max(tenant.ran_s, ran_s)
        self.world.tick(seconds)

    def one(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(a.attempt_id for a in self.world.attempts())))

    @rule(data=st.data())
    @precondition(lambda self: self.world.attempts())
    def begin(self, data: st.DataObject) -> None:
        attempt_id = self.one(data)
        self.begun_s.setdefault(attempt_id, self.world.now)
        self.world.begin(attempt_id)

    @rule(data=st.data())
    @precondition(lambda self: self.world.attempts())
    def finish(self, data: st.DataObject) -> None:
        self.world.finish(self.one(data))

    @rule(data=st.data(), kind=st.sampled_from(KINDS))
    @precondition(lambda self: self.world.attempts())
    def fail(self, data: st.DataObject, kind: str) -> None:
        attempt_id = self.one(data)
        self.count(attempt_id, kind)
        self.world.fail(attempt_id, kind)

    @rule(data=st.data())
    @precondition(lambda self: len(self.world.machine.state.workers) > 1)
    def lose(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.machine.state.workers)))
        for attempt_id in self.world.held.get(name, {}):
            self.count(attempt_id, "lost")
        self.world.lose(name)

    @rule(data=st.data())
    @precondition(lambda self: self.subscribed())
    def cancel(self, data: st.DataObject) -> None:
        waiting = sorted(set(self.tenants) - set(self.world.finals))
        uid = data.draw(st.sampled_from(waiting))
        self.tenants[uid].cancelled = True
        self.world.apply(CancelRequested(uid))

    @rule()
    def pause_the_store(self) -> None:
        self.world.mute_store = True

    @rule()
    def resume_the_store(self) -> None:
        self.world.answer()

    # -- the law ---------------------------------------------------------------------------------

    @invariant()
    def ends_as_alone(self) -> None:
        for uid in sorted(set(self.world.finals) - self.seen):
            self.seen.add(uid)
            final, tenant = self.world.finals[uid], self.tenants[uid]
            if final.phase == "Succeeded":
                assert self.outputs(self.world, uid) == self.outputs_alone(tenant)
            elif not tenant.cancelled:
                assert tenant.explains(final.reason, self.fleet()), (uid, final, tenant)
            if len(self.tenants) > 1 and tenant.made.budget_nanousd == 10:
                assert final.paid_nanousd <= 10 or final.phase != "Succeeded"

    @invariant()
    def nobody_gets_what_it_does_not_trust(self) -> None:
        for result in self.world.cache.values():
            assert result.provenance.trust >= GROUP_TRUST
        for uid, run in self.world.ended_runs.items():
            for part in run.steps["a"].parts.values():
                if part.result is not None:
                    assert part.result.provenance.trust >= self.tenants[uid].min_trust

    @staticmethod
    def outputs(world: World, uid: str) -> object:
        return world.ended_runs[uid].steps["a"].outputs

    def outputs_alone(self, tenant: Tenant) -> object:
        """What the tenant's run gives where it has a fabric that suits it for itself."""
        alone = World()
        wanted = tenant.resources
        alone.join("w", labels=wanted.labels, device_memory_mib=max(4096, wanted.memory_mib))
        made = plan(step("a", resources=wanted), namespace="alone")
        alone.submit(made, "alone", share="group-x")
        alone.run()
        return self.outputs(alone, "alone")

    def teardown(self) -> None:
        """Once workers of each kind do their work, every subscription ends."""
        self.world.answer()
        for name, changes in zip("pqrs", SHAPES[:4], strict=True):
            self.world.join(name, **changes)
        try:
            self.world.run(rounds=200)
        finally:
            super().teardown()
        assert set(self.world.finals) == set(self.tenants), self.world.story()
        self.ends_as_alone()
        book = self.world.machine.state.book
        assert book.unsettled_nanousd == 0
        assert book.bill_nanousd == book.receipts_nanousd + book.fabric_nanousd
        paid = sum(final.paid_nanousd for final in self.world.finals.values())
        assert paid == book.receipts_nanousd
        assert sum(final.executed for final in self.world.finals.values()) == book.executed


TestCompany = Company.TestCase
TestCompany.settings = settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None)


def test_the_invariant_detects_an_unexplained_failure() -> None:
    tenant = Tenant(plan(step("a", attempts=2)), 0.0, failures={"engine": 1})
    assert not tenant.explains("engine", [shape("w")])
    assert not tenant.explains("timeout", [shape("w")])
    assert not tenant.explains("unplaceable", [shape("w")])
    assert metrics(value=1) != metrics(value=2)
