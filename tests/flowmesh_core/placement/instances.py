"""Random scheduling cycles of a given size, the same for the same seed."""

import random

from tests.flowmesh_core.placement.builders import (
    HOUR_USD,
    NOW_S,
    action,
    digest,
    lane,
    signature,
    snapshot,
    worker,
)

from flowmesh_core.fleet.ready import ReadyAction, WorkSize
from flowmesh_core.fleet.snapshot import SignatureInfo, Snapshot, Tier, WorkerView
from flowmesh_core.graph.plan import UtilityWeights

CLASSES = ("nvidia-h100", "nvidia-a100", "nvidia-l40s", "nvidia-4090", "cpu")
POLICIES = (
    UtilityWeights(),
    UtilityWeights(2.0, 0.5, 0.5),
    UtilityWeights(0.5, 2.0, 1.0),
    UtilityWeights(1.0, 0.2, 2.0),
)


def random_signature(rng: random.Random, number: int) -> SignatureInfo:
    """Half serve a model, half are small engines."""
    serves = rng.random() < 0.5
    size = rng.choice((1, 3, 8)) * 1_000_000_000
    return signature(
        f"s{number}x",
        engine="llm.generate" if serves else "data.sql",
        memory_mib=rng.choice((1500, 3000, 6000)) if serves else rng.choice((300, 900)),
        capacity=rng.choice((1, 2, 4, 8)),
        components={f"m{number}x": size} if serves else {},
        work_unit="tokens" if serves else "rows",
    )


def random_action(rng: random.Random, number: int, infos: list[SignatureInfo]) -> ReadyAction:
    """An action of some tenant, policy, size and inputs."""
    info = rng.choice(infos)
    size = 2.0 ** rng.uniform(3, 9)
    tokens = info.work_unit == "tokens"
    inputs = ((digest(f"i{rng.randrange(20)}x"), 5_000_000),) if rng.random() < 0.3 else ()
    return action(
        f"a{number}x",
        info,
        tenant=f"team-{rng.randrange(4)}",
        priority=rng.choice((0, 0, 1)),
        ready_s=NOW_S - rng.uniform(0, 100),
        critical_path_s=rng.uniform(0, 100),
        weights=rng.choice(POLICIES),
        inputs=inputs,
        work=WorkSize(
            units=0.0 if tokens else size * 1000,
            tokens_in=size if tokens else 0.0,
            tokens_out=size if tokens else 0.0,
            input_bytes=sum(b for _, b in inputs),
            component_bytes=sum(b for _, b in info.components),
        ),
    )


def random_worker(rng: random.Random, number: int, infos: list[SignatureInfo]) -> WorkerView:
    """A worker of some class with some lanes, components and inputs."""
    memory_mib = rng.choice((4000, 8000, 16_000))
    lanes = []
    left = memory_mib
    for info in rng.sample(infos, min(2, len(infos))):
        held = rng.choice((0, 1, info.capacity, 2 * info.capacity))
        if rng.random() < 0.5 and info.requirement.memory_mib <= left:
            left -= info.requirement.memory_mib
            seconds = rng.uniform(1, 60) if held else 0.0
            lanes.append(lane(info, assigned=held, remaining_s=seconds))
    near = {f"m{n}x": rng.choice((Tier.DISK, Tier.HOST)) for n in range(9) if rng.random() < 0.2}
    near |= {f"i{n}x": Tier.DISK for n in range(20) if rng.random() < 0.1}
    return worker(
        f"w{number:03d}",
        *lanes,
        memory_mib=memory_mib,
        near=near,
        device_class=rng.choice(CLASSES),
        price_nanousd_per_hour=int(rng.uniform(0.2, 3.0) * HOUR_USD),
    )


def random_snapshot(seed: int, actions: int, workers: int, signatures: int) -> Snapshot:
    """A tick with that many actions, workers and signatures."""
    rng = random.Random(seed)
    infos = [random_signature(rng, n) for n in range(signatures)]
    return snapshot(
        [random_worker(rng, n, infos) for n in range(workers)],
        [random_action(rng, n, infos) for n in range(actions)],
        infos,
        paid={f"team-{n}": rng.uniform(0, 1e8) for n in range(4)},
    )
