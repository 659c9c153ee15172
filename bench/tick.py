"""Measures a scheduling cycle with 100 to 100,000 ready actions and 1 to 1,000 workers.

Two states of the fleet are measured. *Steady*: every worker serves three signatures, most engine
instances are full or one action short of it, 3% are idle, and the inputs of a third of the actions
are on some worker; a cycle fills free slots, with an existing index of ready actions. *Cold*:
everything is idle, so that one cycle fills the whole fleet; that happens once. The garbage
collector is tuned as in the control plane. Run it with ``python bench/tick.py``; ``--quick``
measures one size only.
"""

import argparse
import random
import statistics
import time

from flowmesh_control.loop.gc_tuning import tune_gc
from flowmesh_core.costmodel import CostKey, CostModel
from flowmesh_core.fleet.ready import ReadyAction, WorkSize
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.fleet.snapshot import (
    Decision,
    InstanceView,
    Requirement,
    SignatureInfo,
    Snapshot,
    Tier,
    WorkerView,
)
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.placement import decide
from flowmesh_core.protocol.messages import EngineVersion, WorkerShape
from flowmesh_core.units import Digest

NOW_S = 1_000_000.0
SIGNATURES = 40
TENANTS = 8
CLASSES = (
    ("nvidia-h100", 80_000, 1_900_000_000),
    ("nvidia-a100", 80_000, 1_000_000_000),
    ("nvidia-l40s", 46_000, 700_000_000),
    ("nvidia-4090", 24_000, 380_000_000),
    ("cpu", 64_000, 200_000_000),
)
SPARE_MIB = 400
"""Free memory of a worker in the steady state: too little for any engine instance."""
IDLE = 0.03
"""Share of engine instances that are idle in the steady state."""
POLICIES = (UtilityWeights(), UtilityWeights(2.0, 0.5, 1.0), UtilityWeights(0.5, 2.0, 1.0))


def _digest(name: str) -> Digest:
    return Digest(name.ljust(64, "0"))


def signatures(rng: random.Random) -> list[SignatureInfo]:
    """Returns signatures: half serve a model with 64 slots, half are small engines with 1 or 2."""
    found = []
    for n in range(SIGNATURES):
        serves = n % 2 == 0
        engine = "llm.generate" if serves else "data.sql"
        size = rng.choice((540, 2_500, 6_400, 16_000)) * 1_000_000
        found.append(
            SignatureInfo(
                signature=_digest(f"s{n:03d}x"),
                requirement=Requirement(engine, 1, 1, size // 800_000 if serves else 500),
                components=((_digest(f"m{n:03d}x"), size),) if serves else (),
                capacity=64 if serves else rng.choice((1, 2)),
                work_unit="tokens" if serves else "rows",
            )
        )
    return found


def ready_actions(rng: random.Random, infos: list[SignatureInfo], count: int) -> list[ReadyAction]:
    """Returns actions of all signatures, tenants and policies, sizes within a factor of eight."""
    found = []
    for n in range(count):
        info = rng.choice(infos)
        tokens = info.work_unit == "tokens"
        size = rng.uniform(32, 256)
        inputs = ((_digest(f"i{rng.randrange(4 * count):07d}x"), 500_000),) if n % 3 == 0 else ()
        found.append(
            ReadyAction(
                action_id=Digest(f"{rng.getrandbits(256):064x}"),
                signature=info.signature,
                tenant=f"team-{rng.randrange(TENANTS)}",
                priority=rng.choice((0, 0, 0, 5)),
                deadline_s=float("inf"),
                critical_path_s=rng.uniform(1, 600),
                ready_s=NOW_S - rng.uniform(0, 300),
                work=WorkSize(
                    units=0.0 if tokens else size,
                    tokens_in=size if tokens else 0.0,
                    tokens_out=size if tokens else 0.0,
                    input_bytes=sum(b for _, b in inputs),
                    component_bytes=sum(b for _, b in info.components),
                ),
                inputs=inputs,
                weights=rng.choice(POLICIES),
            )
        )
    return found


def fleet(
    rng: random.Random, infos: list[SignatureInfo], ready: list[ReadyAction], count: int, cold: bool
) -> list[WorkerView]:
    """Returns workers of five classes; unless cold, with three instances and some inputs each."""
    inputs = [digest for action in ready for digest, _ in action.inputs]
    found = []
    for n in range(count):
        device_class, memory_mib, price = CLASSES[n % len(CLASSES)]
        shape = WorkerShape(
            name=f"w{n:04d}",
            pool=device_class,
            device_class=device_class,
            device_memory_mib=memory_mib,
            host_memory_mib=128_000,
            cpus=16,
            price_nanousd_per_hour=price,
            engines={"llm.generate": EngineVersion(1, 1), "data.sql": EngineVersion(1, 1)},
        )
        instances = [] if cold else [_instance(rng, info) for info in rng.sample(infos, 3)]
        input_tiers = (
            {} if cold else dict.fromkeys(rng.sample(inputs, len(inputs) // count), Tier.DISK)
        )
        for lane in instances:
            input_tiers.update(
                (d, Tier.DEVICE)
                for i in infos
                if i.signature == lane.signature
                for d, _ in i.components
            )
        idle = sum(lane.memory_mib for lane in instances if not lane.assigned)
        free = memory_mib if cold else idle + SPARE_MIB
        found.append(WorkerView(shape, {x.signature: x for x in instances}, input_tiers, free))
    return found


def _instance(rng: random.Random, info: SignatureInfo) -> InstanceView:
    full = 2 * info.capacity
    held = 0 if rng.random() < IDLE else full - rng.choice((0, 0, 0, 0, 1))
    return InstanceView(
        signature=info.signature,
        capacity=info.capacity,
        assigned=held,
        remaining_s=rng.uniform(1, 30) if held else 0.0,
        load_remaining_s=0.0,
        memory_mib=info.requirement.memory_mib,
    )


def case(count: int, workers: int, *, cold: bool, seed: int = 1) -> tuple[Snapshot, CostModel]:
    """Returns a snapshot of this size, and a cost model that has observed every signature."""
    rng = random.Random(seed)
    infos = signatures(rng)
    ready = ready_actions(rng, infos, count)
    model = CostModel()
    for info in infos:
        work = WorkSize(
            units=64.0,
            tokens_in=64,
            tokens_out=64,
            component_bytes=sum(b for _, b in info.components),
        )
        for device_class, _, _ in CLASSES:
            model.observe(CostKey.of(info), work, rng.uniform(1, 4), 0.0, device_class, batch=8)
    snapshot = Snapshot(
        workers=fleet(rng, infos, ready, workers, cold),
        ready=ReadyIndex(ready, NOW_S),
        signatures={info.signature: info for info in infos},
        fair_share={f"team-{t}": rng.uniform(0, 1e9) for t in range(TENANTS)},
        now_s=NOW_S,
    )
    return snapshot, model


def measure(snapshot: Snapshot, model: CostModel, repeats: int) -> tuple[float, float, Decision]:
    """Returns median and worst CPU time in milliseconds, and the decision."""
    decision = decide(snapshot, model)
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        decision = decide(snapshot, model)
        taken.append((time.process_time() - start) * 1e3)
    return statistics.median(taken), max(taken), decision


def main() -> None:
    """Prints one line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 x 100 only")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    tune_gc()
    sizes = (
        [(10_000, 100)]
        if options.quick
        else [
            (count, workers)
            for count in (100, 1_000, 10_000, 100_000)
            for workers in (1, 10, 100, 1000)
        ]
    )
    print(f"{'fleet':8}{'ready':>8}{'workers':>9}{'placed':>8}{'median ms':>11}{'worst ms':>10}")
    for cold in (False, True):
        for count, workers in sizes:
            snapshot, model = case(count, workers, cold=cold)
            median, worst, decision = measure(snapshot, model, options.repeats)
            placed = sum(len(p.actions) for p in decision.placements)
            name = "cold" if cold else "steady"
            print(f"{name:8}{count:8}{workers:9}{placed:8}{median:11.1f}{worst:10.1f}")


if __name__ == "__main__":
    main()
