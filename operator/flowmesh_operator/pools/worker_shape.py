"""Derives from a pool's spec and the catalog what its workers are.

``pool_shape`` predicts their shape, for the capacity signal that starts the first one; once a
worker has connected, the shape that it reports is used (``PoolEntry.learn``). That is bound by
``pool_declaration``.
"""

from collections.abc import Iterator

from msgspec import UNSET

from flowmesh_core.catalog.builtin import contracts as builtin_contracts
from flowmesh_core.catalog.builtin_models import BUILTIN_MODELS
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.fleet.pool_declaration import UNKNOWN_CLASS, PoolDeclaration
from flowmesh_core.protocol.messages import EngineVariant, WorkerShape
from flowmesh_core.spec.pool import DevicesSpec, FlowMeshWorkerPool, WorkerPoolSpec
from flowmesh_core.spec.quantities import mebibytes
from flowmesh_core.units import nano_usd
from flowmesh_operator.pools.device_memory import (
    SMALLEST_MIB,
    device_memory_mib,
    known_memory_mib,
)

LIBRARY_ENGINES = frozenset({"model.import", "model.merge", "retrieve.topk"})
LIBRARY_FAMILIES = ("llm.", "train.")
"""Built-in engines that need libraries which the thin image does not have."""

ZONE_LABEL = "topology.kubernetes.io/zone"
_PRODUCT_MARGIN = 20
"""A device may report a twentieth more than the table has for its product: models differ."""
_AGENT_SHARE = 10
_AGENT_LEAST_MIB = 512
_DTYPES = ("auto", "float32", "bfloat16", "float16")
_GENERATING = frozenset({"llm.generate", "llm.agent"})
_BATCH_API = "llm.openai"
_SCORING = "llm.score"
_EMBEDDING = "llm.embed"


def engine_memory_mib(spec: WorkerPoolSpec) -> int:
    """Returns the MiB of host memory that engines may reserve: all but the agent's."""
    total = mebibytes(spec.resources.memory)
    return max(total // 2, total - max(_AGENT_LEAST_MIB, total // _AGENT_SHARE))


def threads(spec: WorkerPoolSpec) -> int:
    """Returns the CPU threads of a worker."""
    return max(1, int(spec.resources.cpu))


def device_class(product: str) -> str:
    """Returns the device class that workers report: ``nvidia-h200`` for ``NVIDIA-H200``."""
    words = product.lower().removeprefix("nvidia").replace("-", " ").split()
    return "-".join(["nvidia", *words])


def pool_shape(pool: FlowMeshWorkerPool, catalog: Catalog) -> WorkerShape:
    """Returns the expected shape of a pool's worker."""
    spec, name = pool.spec, pool.metadata.name
    host_mib, devices = engine_memory_mib(spec), spec.devices
    offered = list(_offered(spec, catalog))
    kind, memory_mib = "cpu", host_mib
    if devices is not None:
        kind = device_class(devices.product) if devices.product else UNKNOWN_CLASS
        known = device_memory_mib(devices.product) if devices.product else SMALLEST_MIB
        memory_mib = mebibytes(devices.memory) if devices.memory else known
    return WorkerShape(
        name=name,
        pool=name,
        device_class=kind,
        devices=devices.count if devices else 1,
        device_memory_mib=memory_mib,
        host_memory_mib=host_mib,
        cpus=threads(spec),
        price_nanousd_per_hour=nano_usd(spec.price.usd_per_hour) if spec.price else 0,
        price_estimated=spec.price is None,
        power_w=spec.power.load_watts if spec.power else 0.0,
        idle_w=spec.power.idle_watts if spec.power else 0.0,
        labels=spec.labels,
        allows_user_code=spec.user_code,
        # Until a worker has reported what its node gives.
        sandbox=spec.sandbox.minimum if spec.user_code else "",
        sandbox_minimum=spec.sandbox.minimum if spec.user_code else "",
        single_tenant=spec.user_code and spec.sandbox.host_users,
        trust=spec.trust_level,
        spot=(spec.price is not None and spec.price.capacity == "spot") or UNSET,
        engines={c.name: c.versions for c in offered},
        variants=tuple(h for c in offered for h in _variants(c, kind)),
        # The images of the other flavors contain none.
        builtin_models=tuple(sorted(BUILTIN_MODELS)) if spec.flavor == "cpu" else (),
    )


def pool_declaration(pool: FlowMeshWorkerPool, catalog: Catalog) -> PoolDeclaration:
    """Returns what a pool's spec says of its workers, which binds what they report."""
    spec, shape = pool.spec, pool_shape(pool, catalog)
    devices = spec.devices
    return PoolDeclaration(
        price_nanousd_per_hour=shape.price_nanousd_per_hour,
        price_estimated=shape.price_estimated,
        power_w=shape.power_w,
        idle_w=shape.idle_w,
        labels=shape.labels,
        zone=spec.node_selector.get(ZONE_LABEL, ""),
        allows_user_code=shape.allows_user_code,
        sandbox_minimum=shape.sandbox_minimum,
        engines=frozenset(shape.engines) | frozenset(spec.engines.plugins),
        devices=devices.count if devices else 0,
        device_memory_mib=_declared_memory_mib(devices) if devices else 0,
        host_memory_mib=shape.host_memory_mib,
        cpus=shape.cpus,
        spot=bool(shape.spot),
    )


def _declared_memory_mib(devices: DevicesSpec) -> int:
    """Returns the most that a device of the pool has; 0 where neither spec nor product tells."""
    if devices.memory:
        return mebibytes(devices.memory)
    known = known_memory_mib(devices.product or "")
    return known + known // _PRODUCT_MARGIN


def _offered(spec: WorkerPoolSpec, catalog: Catalog) -> Iterator[EngineContract]:
    own = {c.name for c in builtin_contracts()}
    for contract in catalog:
        name = contract.name
        needs = name in LIBRARY_ENGINES or name.startswith(LIBRARY_FAMILIES)
        in_image = name in own and not (needs and spec.flavor == "thin")
        if in_image or name in spec.engines.plugins:
            yield contract


def _variants(contract: EngineContract, kind: str) -> Iterator[EngineVariant]:
    """Yields the variants of a worker with all libraries; a test compares them with a worker's."""
    name = contract.name
    if not contract.identity_fields:
        return
    vllm = "" if name == _BATCH_API else "vllm"
    if name in (*_GENERATING, _BATCH_API) and kind == "cpu":
        yield EngineVariant(name, vllm, ("auto", "float32"), (True, False))
        yield EngineVariant(name, vllm, ("bfloat16", "float16"), (False,))
        if name in _GENERATING:
            yield EngineVariant(name, "transformers", _DTYPES, (True, False))
    elif name in (*_GENERATING, _SCORING, _EMBEDDING):
        yield EngineVariant(name, "vllm", _DTYPES, (True, False))
        yield EngineVariant(name, "transformers", _DTYPES, (True, False))
    else:
        yield EngineVariant(name, "", _DTYPES, (True, False))
