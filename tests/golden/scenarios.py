"""The sources of the machine's goldens: simulated fabrics and hand-made worlds."""

import random
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace
from tests.flowmesh_core.machine import test_chaos
from tests.flowmesh_core.machine.world import (
    ASK,
    CODE,
    MAP,
    SOLO,
    World,
    after,
    plan,
    rows_of,
    step,
)
from tests.flowmesh_core.machine.world import dataset as dataset_of
from tests.golden.recording import Line, recorded

from flowmesh_core.audit.plan import audit_plan
from flowmesh_core.audit.reconstruct import made_by
from flowmesh_core.dataset.manifest import ChunkRef, Manifest
from flowmesh_core.dataset.schema import Schema
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.graph.plan import ArtifactSource, Edge, Resources
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine import commands as c
from flowmesh_core.machine import events as e
from flowmesh_core.machine.settings import Settings
from flowmesh_core.machine.step_results import dataset_artifact
from flowmesh_core.protocol.messages import (
    Assignment,
    EngineVariant,
    PrewarmSpec,
    RouterAddress,
    ServingReplica,
    ServingReplicaState,
)
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing.scopes import audit_scopes
from flowmesh_core.units import Digest
from flowmesh_sim.run.simulation import simulate
from flowmesh_sim.scenario import scenario_of

FULL = Failure(FailureKind.STORE, "the result could not be published: no space is left", "free it")
MANY = 2000


# -- simulated -----------------------------------------------------------------------------------


def first_answer() -> None:
    """One small workflow of three tenants, who share its actions."""
    simulate_one(
        pools=[{"name": "h100", "device": "h100-nvl", "workers": 1}],
        load=[
            {
                "shapes": ["a-chain"],
                "runs": 3,
                "rows": 4,
                "variants": 1,
                "tenants": 3,
                "arrivals": {"kind": "every", "perMinute": 30},
            }
        ],
    )


def rlhf() -> None:
    """Fine-tuning, reward model, PPO and evaluation, twice, beside RLAIF with DPO."""
    common = {"variants": 1, "rows": 8, "arrivals": {"kind": "every", "perMinute": 2}}
    simulate_one(
        pools=[{"name": "h100", "device": "h100-nvl", "workers": 2, "prewarm": True}],
        load=[
            {"shapes": ["b-ppo"], "runs": 2, "tenants": 2, **common},
            {"shapes": ["b-dpo"], "runs": 1, "tenants": 1, **common},
        ],
        control={"syncIntervalS": 20.0, "watchdogS": 120.0},
    )


def worker_crash() -> None:
    """Workers that crash, are preempted or lose their network while they run attempts."""
    simulate_one(
        pools=[{"name": "small", "device": "cpu", "workers": 3}],
        load=[
            {"shapes": ["steps", "sleepers", "mixed"], "runs": 6, "rows": 12, "variants": 2},
        ],
        faults=[
            {"kind": "crash", "atS": 2.5, "busiest": True},
            {"kind": "host-crash", "atS": 4.0, "busiest": True},
            {"kind": "preempt", "atS": 6.0, "busiest": True},
            {"kind": "silence", "atS": 9.0, "forS": 6.0, "busiest": True},
        ],
        control={"watchdogS": 3.0},
    )


def leader_restart() -> None:
    """A leader that crashes twice; its workers continue and report to the next one."""
    simulate_one(
        pools=[{"name": "small", "device": "cpu", "workers": 2}],
        load=[
            {"shapes": ["steps", "sleepers", "mixed"], "runs": 6, "rows": 16, "variants": 3},
        ],
        faults=[
            {"kind": "control-crash", "atS": 3.2, "forS": 2.0},
            {"kind": "control-crash", "atS": 14.4, "forS": 1.0},
        ],
    )


def simulate_one(**document: Any) -> None:
    """Simulates a scenario to its end."""
    simulate(scenario_of({"name": "golden", "seed": 7, **document}))


# -- hand-made -----------------------------------------------------------------------------------


def out_of_memory() -> None:
    """Out of memory: half the load, larger reservations, a larger worker, and no fit at all."""
    world = World()
    world.join("small", device_memory_mib=1024)
    for value in range(4):
        world.submit(plan(step("a", value=value)))
    world.tick(0.1)
    world.fail(world.attempts()[0].attempt_id, "out-of-memory")
    for other in world.attempts():
        world.finish(other.attempt_id)
    world.tick(0.1)
    for _ in range(2):
        world.fail(world.attempts()[0].attempt_id, "out-of-memory")
        world.tick(0.1)
    world.join("large", device_memory_mib=8192)
    world.fail(world.attempts()[0].attempt_id, "out-of-memory")
    world.tick(0.1)
    world.finish(world.attempts()[0].attempt_id)
    greedy = world.submit(plan(step("a", value="greedy")))
    while greedy not in world.finals:
        world.tick(0.1)
        world.fail(world.attempts()[0].attempt_id, "out-of-memory")
    world.submit(plan(step("a", value="modest")))
    world.run()


def audit() -> None:
    """A run of chunks and metrics, and its audit, which executes all of it again."""
    world = World()
    world.join("w1", "w2")
    rows = dataset_of(*(f"text {n}" for n in range(6)))
    maps = step("map", rows_of(rows), uses=MAP), step("count", *after("map"))
    made = plan(*maps, step("last", *after("count"), uses=SOLO))
    uid = world.submit(made, artifacts=[rows])
    world.run()
    chosen = list(made_by(world.ended_runs[uid], world.ledger[uid]))
    again, artifacts = audit_plan(uid, made, chosen)
    scopes = audit_scopes("audit-1", world.ended_runs[uid].scopes)
    world.apply(e.Submitted("audit-1", again, world.now, scopes, artifacts))
    world.run()


def budget_end() -> None:
    """Budgets that end before the work: the next action is too expensive, or one overspends."""
    world = World()
    world.join("w1", "w2")
    rows = dataset_of(*(f"text {n}" for n in range(12)))
    steps = step("map", rows_of(rows), uses=MAP), step("count", *after("map"))
    world.submit(plan(*steps, budget_nanousd=900_000), artifacts=[rows], share="group-x")
    long = plan(step("long", uses=SOLO), namespace="team-c", budget_nanousd=3_000_000)
    world.submit(long)
    for value in range(6):
        world.submit(plan(step("own", value=value), budget_nanousd=150_000 * (value + 1)))
    world.tick(0.1)
    for _ in range(8):
        for attempt in world.attempts():
            world.begin(attempt.attempt_id, units=1)
        world.tick(0.5)
        for attempt in world.attempts():
            if attempt.engine == MAP.name:
                world.finish(attempt.attempt_id)
                break
    rich = plan(*steps, namespace="team-b", budget_nanousd=10**12)
    world.submit(rich, artifacts=[rows], share="group-x")
    world.run()


def many_chunks() -> None:
    """A run of thousands of chunks on eight workers, whose digests are numbers to save space."""
    world = _Chunks()
    world.join(*(f"w{n}" for n in range(8)))
    rows = dataset_artifact(_numbered(range(MANY)))
    steps = step("map", rows_of(rows), uses=MAP, value=1), step("count", *after("map"))
    world.submit(plan(*steps, outputs={}), artifacts=[rows])
    world.run()


def full_store() -> None:
    """A full store: some results wait, one is given up, one is refused."""
    world = World(Settings(watchdog_s=10.0, publish_patience_s=60.0))
    world.join("w1")
    for value in range(4):
        world.submit(plan(step("a", value=value), step("b", *after("a"), value=value)))
    world.tick(0.1)
    world.mute_store = True
    for attempt in world.attempts():
        world.finish(attempt.attempt_id)
    waiting = [one.key for one in world.unanswered if isinstance(one, c.Publish)]
    refused = Failure(FailureKind.STORE, "the store refused the result", "ask its administrator")
    world.apply(e.PublishFailed(waiting[0], refused))
    world.unanswered = [one for one in world.unanswered if getattr(one, "key", None) != waiting[0]]
    for _ in range(7):
        for key in waiting[1:]:
            world.apply(e.PublishDelayed(key, FULL))
        world.beat()
        world.tick(5.0)
    world.answer()
    world.tick(0.5)
    world.mute_store = True
    late = world.attempts()[0]
    world.finish(late.attempt_id)
    (given_up,) = [one.key for one in world.unanswered if isinstance(one, c.Publish)]
    for _ in range(8):
        world.apply(e.PublishDelayed(given_up, FULL))
        world.beat()
        world.tick(9.0)
    world.apply(e.PublishDelayed(given_up, FULL))
    world.mute_store = False
    world.unanswered.clear()
    world.run()


def other_rows() -> None:
    """Rows that are not what their identity says: made again elsewhere, and compared."""
    world = World()
    world.join("w1", "w2")
    rows = dataset_of("one")
    source = rows_of(rows)
    steps = step("m", source, uses=MAP), step("n", rows_of("m"), uses=MAP)
    world.submit(plan(*steps), artifacts=[rows])
    world.tick(0.1)
    (first,) = world.attempts()
    producer = world.worker_of(first.attempt_id)
    world.finish(first.attempt_id)
    world.tick(0.1)
    (reader,) = world.attempts()
    blobs = reader.inputs["rows"].artifact.blobs()
    world.fail(reader.attempt_id, "missing-blob", detail=" ".join(blobs), reason="identity")
    world.apply(e.ProtocolViolated(producer, "rows of another identity", pool="default"))
    world.apply(e.WorkerDisagreed(producer, "default"))
    world.run()


def one_tenant() -> None:
    """Workers that run the user code of one tenant: an idle one leaves for another tenant."""
    world = World()
    alone = {"allows_user_code": True, "sandbox": "landlock", "single_tenant": True}
    world.join("v", "w", code_tenant="team-a", **alone)
    world.submit(plan(step("a", uses=CODE), namespace="team-b"))
    for _ in range(20):
        world.beat("v", "w")
        world.tick(1.0)
    world.lose("v")
    world.join("v", **alone)
    world.run()


def services() -> None:
    """Replicas of services beside attempts, on a worker that connects again in between."""
    world = World()
    world.join("v", "w", replicas=())
    opening = PrewarmSpec(digest_bytes(b"llm"), SOLO.name, 1, 1, memory_mib=3500)
    wanted = ServingReplica("team-a/ask/llm/r1/0", "team-a/ask", "llm", "r1", opening)
    states = [
        ServingReplicaState(wanted.replica_id, state, "", calls, units, opening.signature, 3500)
        for state, calls, units in (("loading", 0, 0), ("ready", 2, 60), ("ready", 0, 90))
    ]
    planned = e.ServingPlanChanged({"w": (wanted,)}, (RouterAddress("unix:/run/router"),))
    world.apply(planned)
    for state in states:
        world.submit(plan(step(f"s{state.units}", resources=Resources(memory_mib=1000))))
        world.serves("w", state)
        world.tick(5.0)
        world.beat("v", "w")
    world.hello("w", replicas=(states[-1],))
    world.apply(planned)
    world.run()
    world.apply(e.ServingPlanChanged({}))
    world.serves("w")


def namespace_limits() -> None:
    """Quotas hold back user code, and a namespace that has spent its day's dollars."""
    world = World()
    world.join("v", "w", allows_user_code=True, sandbox="landlock")
    limits = {"team-a": e.NamespaceLimits(1, 1), "team-b": e.NamespaceLimits(None, None, "full")}
    world.apply(e.NamespaceLimitsChanged(limits))
    for team in ("team-a", "team-b", "team-c"):
        steps = (step(name, uses=CODE, of=team, value=name) for name in ("a", "b", "c"))
        world.submit(plan(*steps, namespace=team))
    for _ in range(3):
        world.tick(0.5)
        world.beat("v", "w")
        for attempt in world.attempts():
            world.finish(attempt.attempt_id)
    world.apply(e.NamespaceLimitsChanged({"team-a": e.NamespaceLimits(1)}))
    world.run()


def operations() -> None:
    """Changes by administrators and users: cordons, prewarmed engines, versions, a stall."""
    world = World()
    for name, changes in MACHINES.items():
        world.join(name, **changes)
    first = world.submit(plan(step("a"), _ask("b", *after("a"), value=1)), artifacts=[BASE])
    world.submit(plan(_ask("b", value=2), namespace="team-b"), artifacts=[BASE])
    world.tick(0.1)
    signatures = tuple(sorted(world.machine.state.signatures))
    world.apply(e.CordonChanged(frozenset({"w1", "absent"})))
    world.apply(e.ProtocolViolated("w2", "metrics: a value below 0"))
    world.apply(e.WorkerTrustChanged("w2", world.incarnations["w2"], 1))
    world.apply(e.PrewarmPlanChanged({"w2": signatures, "w1": signatures[:1]}))
    world.apply(e.WeightsChanged({"team-b": 3.0}))
    world.apply(e.ReservedPoolsChanged({"default": frozenset({"team-b"})}))
    for _ in range(3):
        world.tick(0.5)
        world.beat()
    world.apply(e.ControlStalled())
    world.now += 20.0
    world.apply(e.ControlStalled())
    world.beat()
    run = world.machine.state.runs[first]
    other = plan(step("a"), step("b", *after("a"), uses=SOLO))
    restored = tuple(run.lines)
    pinned = e.Submitted(first, other, run.created_s, run.scopes, {}, restored=restored)
    world.apply(e.Repinned(pinned, "runs/x/repins/1", {"test.ask": "1.1 -> 1.2"}))
    cancelled = world.submit(plan(step("never", value=9), namespace="team-c", priority=3))
    world.apply(e.Amended(cancelled, {"suspend": True, "priority": 1}))
    world.tick(0.5)
    world.apply(e.CancelRequested(cancelled))
    world.apply(e.PrewarmPlanChanged({}))
    world.apply(e.CordonChanged(frozenset()))
    world.apply(e.ReservedPoolsChanged({}))
    world.run()


def revocation() -> None:
    """Content that is revoked while one run works on it, and another tenant's on equal content."""
    world = World()
    world.join("w1", "w2")
    rows, other = dataset_of("one", "two"), dataset_of("three")
    made = plan(
        step("map", rows_of(rows), uses=MAP),
        step("after", *after("map")),
        step("beside", rows_of(other), uses=MAP),
    )
    for namespace in ("team-a", "team-b"):
        given = replace(made, namespace=namespace)
        world.submit(given, f"of-{namespace}", share="all", artifacts=[rows, other])
    world.tick(0.5)
    world.apply(e.ContentRevoked(frozenset({rows.digest}), world.now, "team-a"))
    world.tick(0.5)
    world.submit(made, "later", share="all", artifacts=[rows, other])
    world.run()


def conditions() -> None:
    """Conditions that hold, do not, fail, wait for evaluators, and lose what they have read."""
    world = World()
    world.join("w1", "w2")
    rows = dataset_of("one", "two")
    read: dict[str, Any] = {"when_steps": ("map",)}
    made = plan(
        step("map", rows_of(rows), uses=MAP),
        step("some", when="steps['map'].rows.count > 1", **read),
        step("none", when="steps['map'].rows.count > 2", **read),
        step("wrong", when="steps['map'].metrics.count + 1", **read),
        step("after", *after("some")),
        step("skipped", *after("none")),
    )
    world.evaluators_stopped = True
    for name in ("one", "two", "three"):
        world.submit(made, name, share="all", artifacts=[rows])
    for _ in range(4):
        world.tick(0.5)
        world.beat()
        for attempt in world.attempts():
            world.finish(attempt.attempt_id)
    world.apply(e.CancelRequested("two"))
    world.answer()
    world.run()


def chaos() -> None:
    """Random workflows and faults, as in the machine's test of the same name."""
    rng, world, uids = random.Random(5), World(), list[str]()
    made, artifacts = test_chaos.random_plan(rng)
    uids.append(world.submit(made, "r0", artifacts=artifacts))
    for _ in range(300):
        test_chaos.fault(world, rng, uids)
    for uid in uids:
        world.apply(e.Amended(uid, {"suspend": False}))
    world.answer()
    world.join("last", device_memory_mib=1 << 20)
    world.run(rounds=600)


_BASE = digest_bytes(b"base")
BASE = Artifact("model", _BASE, _BASE, 500 << 20)
MACHINES: Mapping[str, dict[str, Any]] = {
    "w1": {"variants": (EngineVariant(ASK.name, dtypes=("float32",)),)},
    "w2": {"variants": (EngineVariant(ASK.name, dtypes=("float32",)),), "device_memory_mib": 8192},
}


def _ask(path: str, *edges: Edge, **params: Any) -> Any:
    model = Edge("model", "model", (ArtifactSource("model", f"cas:{BASE.blob}"),))
    return replace(step(path, model, *edges, uses=ASK, **params), fields={"dtype": "float32"})


def _numbered(numbers: range, kind: int = 0) -> Manifest:
    """Returns a chunk for each number."""
    names = [(Digest(f"{kind}{n:063x}"), Digest(f"{kind + 1}{n:063x}")) for n in numbers]
    chunks = tuple(ChunkRef(rows, blob, 1, 10) for rows, blob in names)
    return Manifest(Schema.of({"text": "string"}), chunks)


class _Chunks(World):
    """A world whose datasets have numbers for digests."""

    def finish(self, attempt_id: str, **changes: Any) -> None:
        assignment = self.held[self.worker_of(attempt_id)][attempt_id]
        super().finish(attempt_id, **_numbered_outputs(assignment), **changes)

    def check(self) -> None:
        """Not after every event of thousands."""


def _numbered_outputs(assignment: Assignment) -> dict[str, Any]:
    rows = assignment.inputs.get("rows")
    if rows is None or rows.artifact.manifest is None:
        return {}
    number = int(rows.artifact.manifest.chunks[0].rows[1:], 16)
    manifest = _numbered(range(number, number + 1), 2)
    digest = Digest(f"4{number:063x}")
    made = Artifact("dataset", digest, digest, 10, 1, manifest)
    count = Digest(f"5{0:063x}")
    return {
        "outputs": {"rows": made, "metrics": Artifact("metrics", count, count, 10, value={"n": 1})}
    }


SCENARIOS: Mapping[str, tuple[str, Callable[[], None]]] = {
    "first-answer": ("builtin", first_answer),
    "rlhf": ("builtin", rlhf),
    "worker-crash": ("builtin", worker_crash),
    "out-of-memory": ("world", out_of_memory),
    "leader-restart": ("builtin", leader_restart),
    "audit": ("world", audit),
    "budget-end": ("world", budget_end),
    "many-chunks": ("world", many_chunks),
    "full-store": ("world", full_store),
    "other-rows": ("world", other_rows),
    "one-tenant": ("world", one_tenant),
    "namespace-limits": ("world", namespace_limits),
    "operations": ("world", operations),
    "conditions": ("world", conditions),
    "revocation": ("world", revocation),
    "services": ("world", services),
    "chaos": ("world", chaos),
}
"""By golden: the catalog of its machines, and what happens to them."""


def record(name: str) -> list[Line]:
    """Records a golden; returns its lines."""
    catalog, play = SCENARIOS[name]
    with recorded(catalog) as tape:
        play()
    return tape.lines
