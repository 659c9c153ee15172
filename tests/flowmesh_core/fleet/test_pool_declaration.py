"""A worker's shape as its pool's workers may have it."""

from dataclasses import replace

import msgspec

from flowmesh_core.fleet.pool_declaration import PoolDeclaration
from flowmesh_core.protocol.messages import EngineVariant, EngineVersion, WorkerShape

ENGINES = {"llm.generate": EngineVersion(2, 1), "data.sql": EngineVersion(1, 1)}
SAID = WorkerShape(
    name="gpu-1",
    pool="gpu",
    device_class="nvidia-h200",
    device_memory_mib=143_771,
    host_memory_mib=8192,
    cpus=8,
    price_nanousd_per_hour=1,
    engines=ENGINES,
    devices=4,
    variants=(EngineVariant("llm.generate", "vllm"), EngineVariant("llm.score", "vllm")),
    zone="a",
    labels={"x": "y"},
    allows_user_code=True,
)
DECLARED = PoolDeclaration(
    price_nanousd_per_hour=100,
    price_estimated=False,
    power_w=700.0,
    idle_w=70.0,
    labels={"tier": "low"},
    zone="",
    allows_user_code=False,
    sandbox_minimum="",
    engines=frozenset({"llm.generate"}),
    devices=2,
    device_memory_mib=10_000,
    host_memory_mib=4096,
    cpus=4,
)


def test_price_power_labels_and_user_code_are_taken_from_the_pool() -> None:
    found = DECLARED.bound(SAID)
    assert (found.price_nanousd_per_hour, found.price_estimated) == (100, False)
    assert (found.power_w, found.idle_w) == (700.0, 70.0)
    assert (found.labels, found.allows_user_code) == ({"tier": "low"}, False)


def test_engines_devices_and_memory_are_reduced_to_the_declaration_and_never_raised() -> None:
    found = DECLARED.bound(SAID)
    assert found.engines == {"llm.generate": EngineVersion(2, 1)}
    assert found.variants == (EngineVariant("llm.generate", "vllm"),)
    assert (found.devices, found.device_memory_mib) == (2, 10_000)
    assert (found.host_memory_mib, found.cpus) == (4096, 4)
    assert found.device_class == "nvidia-h200"
    small = msgspec.structs.replace(
        SAID, engines={}, devices=1, device_memory_mib=1, host_memory_mib=1, cpus=1
    )
    found = DECLARED.bound(small)
    assert (found.engines, found.devices, found.device_memory_mib) == ({}, 1, 1)
    assert (found.host_memory_mib, found.cpus) == (1, 1)


def test_the_workers_zone_applies_unless_its_pool_is_bound_to_one() -> None:
    assert DECLARED.bound(SAID).zone == "a"
    assert replace(DECLARED, zone="b").bound(SAID).zone == "b"


def test_the_memory_of_an_unknown_device_is_taken_from_the_worker() -> None:
    unknown = replace(DECLARED, device_memory_mib=0)
    assert unknown.bound(SAID).device_memory_mib == SAID.device_memory_mib


def test_a_pool_without_devices_has_workers_on_the_cpu() -> None:
    found = replace(DECLARED, devices=0).bound(SAID)
    assert (found.device_class, found.devices) == ("cpu", 1)
    assert found.device_memory_mib == found.host_memory_mib == 4096
