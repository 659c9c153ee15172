"""Small fleets and ready sets, written as a test wants to read them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec import structs

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
from flowmesh_core.protocol.messages import EngineVersion, WorkerShape
from flowmesh_core.units import Digest

NOW_S = 1_000.0
HOUR_USD = 1_000_000_000


def digest(name: str) -> Digest:
    """A digest that reads as its name."""
    return Digest(name.ljust(64, "0"))


def signature(
    name: str,
    *,
    memory_mib: int = 1000,
    capacity: int = 1,
    engine: str = "llm.generate",
    components: Mapping[str, int] | None = None,
    work_unit: str = "rows",
    **requirement: object,
) -> SignatureInfo:
    """A signature whose components are given by name and bytes."""
    return SignatureInfo(
        signature=digest(name),
        requirement=Requirement(
            engine=engine,
            contract=1,
            implementation_version=1,
            memory_mib=memory_mib,
            **requirement,  # type: ignore[arg-type]
        ),
        components=tuple((digest(n), size) for n, size in (components or {}).items()),
        capacity=capacity,
        work_unit=work_unit,
    )


def action(name: str, info: SignatureInfo, **fields: object) -> ReadyAction:
    """A ready action of 100 units; ``fields`` replace any other field."""
    known = ReadyAction(
        action_id=digest(name),
        signature=info.signature,
        tenant="team",
        priority=0,
        deadline_s=float("inf"),
        critical_path_s=0.0,
        ready_s=NOW_S - 1.0,
        work=WorkSize(units=100.0, component_bytes=sum(size for _, size in info.components)),
        weights=UtilityWeights(),
    )
    return structs.replace(known, **fields)  # type: ignore[arg-type]


def lane(info: SignatureInfo, *, held: int = 0, **fields: object) -> InstanceView:
    """A ready lane of a signature."""
    known = InstanceView(
        signature=info.signature,
        capacity=info.capacity,
        assigned=held,
        remaining_s=10.0 if held else 0.0,
        load_remaining_s=0.0,
        memory_mib=info.requirement.memory_mib,
    )
    return replace(known, **fields)  # type: ignore[arg-type]


def worker(
    name: str,
    *lanes: InstanceView,
    memory_mib: int = 8000,
    near: Mapping[str, Tier] | None = None,
    draining: bool = False,
    **shape: object,
) -> WorkerView:
    """A worker; what its busy lanes reserve is taken from its memory."""
    known: dict[str, object] = {
        "pool": "pool",
        "device_class": "nvidia-l40s",
        "host_memory_mib": 64_000,
        "cpus": 8,
        "price_nanousd_per_hour": HOUR_USD,
        "engines": {"llm.generate": EngineVersion(1, 1), "data.sql": EngineVersion(1, 1)},
    }
    reserved = sum(one.memory_mib for one in lanes if one.assigned)
    return WorkerView(
        shape=WorkerShape(name=name, device_memory_mib=memory_mib, **(known | shape)),  # type: ignore[arg-type]
        instances={one.signature: one for one in lanes},
        local={digest(n): tier for n, tier in (near or {}).items()},
        free_memory_mib=memory_mib - reserved,
        draining=draining,
    )


def snapshot(
    workers: list[WorkerView],
    ready: list[ReadyAction],
    infos: list[SignatureInfo],
    *,
    paid: Mapping[str, float] | None = None,
    weights: Mapping[str, float] | None = None,
    now_s: float = NOW_S,
) -> Snapshot:
    """A tick's view; ``paid`` is virtual time by tenant."""
    return Snapshot(
        workers=sorted(workers, key=lambda w: w.name),
        ready=ReadyIndex(ready, now_s),
        signatures={info.signature: info for info in infos},
        fair_share=paid or {},
        now_s=now_s,
        tenant_weights=weights or {},
    )


def with_ready(view: Snapshot, ready: Iterable[ReadyAction]) -> Snapshot:
    """The same with other ready actions."""
    return replace(view, ready=ReadyIndex(ready, view.now_s))


def where(decision: Decision) -> dict[str, str]:
    """Action → worker, by their short names."""
    return {
        name.rstrip("0"): placement.worker
        for placement in decision.placements
        for name in placement.actions
    }


def refused(decision: Decision) -> dict[str, int]:
    """Cause → count, over all signatures."""
    found: dict[str, int] = {}
    for rejection in decision.rejections:
        found[rejection.cause] = found.get(rejection.cause, 0) + rejection.count
    return found
