"""The expected shape of a pool without workers equals what its workers report later."""

from typing import Any

import pytest
from msgspec import structs
from tests.flowmesh_operator.pool_builder import make_pool

from flowmesh_control.autoscaling.worker_fleet import ConnectedWorker
from flowmesh_core.autoscaling.settings import SUPPLY_PATIENCE_MIN_S, SUPPLY_RETRY_S
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.fleet.pool_declaration import PoolDeclaration
from flowmesh_core.protocol.messages import Component, WorkerShape
from flowmesh_core.units import Digest
from flowmesh_operator.kube.conditions import ConditionUpdate
from flowmesh_operator.pools.autoscaling import ScalingPlan
from flowmesh_operator.pools.conditions import PoolCondition, PoolReason
from flowmesh_operator.pools.pool import PoolEntry
from flowmesh_operator.pools.status import distrust
from flowmesh_operator.pools.worker_shape import device_class, pool_declaration, pool_shape
from flowmesh_worker import shape as worker_shape
from flowmesh_worker.engines.models.builtin import installed_models
from flowmesh_worker.engines.registry import installed_engines


def shape_of(spec: dict[str, Any]) -> WorkerShape:
    return pool_shape(make_pool(spec), load_catalog())


@pytest.mark.parametrize(
    ("spec", "kind"),
    [({}, "cpu"), ({"devices": {"product": "NVIDIA-H200"}}, "nvidia-h200")],
)
def test_engines_and_variants_equal_those_that_a_worker_announces(
    spec: dict[str, Any], kind: str
) -> None:
    expected, engines = shape_of(spec), installed_engines(on_devices=kind != "cpu")
    assert expected.device_class == kind
    assert expected.engines == engines.versions()
    # What the tests run in is the image of flavor cpu.
    assert expected.builtin_models == (installed_models() if kind == "cpu" else ())
    assert set(expected.variants) == set(engines.variants(kind))


@pytest.mark.parametrize(
    ("product", "reported"),
    [
        ("NVIDIA-H200", "NVIDIA H200"),
        ("NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA-A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("Tesla-T4", "Tesla T4"),
        ("NVIDIA-GeForce-RTX-4090", "NVIDIA GeForce RTX 4090"),
    ],
)
def test_a_products_device_class_equals_the_one_that_workers_report(
    product: str, reported: str
) -> None:
    assert device_class(product) == worker_shape._device_class(reported)


@pytest.mark.parametrize(
    ("devices", "memory_mib"),
    [
        ({"product": "NVIDIA-H200"}, 143_771),
        ({"product": "NVIDIA-H100-80GB-HBM3"}, 81_510),
        ({"product": "NVIDIA-L40S"}, 46_068),
        ({"product": "Something-New"}, 15_360),
        ({"product": "Something-New", "memory": "100Gi"}, 102_400),
        ({}, 15_360),
    ],
)
def test_the_memory_of_devices_is_set_or_known_by_product(
    devices: dict[str, Any], memory_mib: int
) -> None:
    assert shape_of({"devices": devices}).device_memory_mib == memory_mib


def test_a_thin_pool_offers_the_engines_that_need_no_model_library() -> None:
    thin = shape_of({"engines": {"flavor": "thin"}})
    assert "data.sql" in thin.engines
    assert "eval.exact-match" in thin.engines
    assert not {e for e in thin.engines if e.startswith(("llm.", "train.", "model."))}
    assert thin.variants == ()
    assert thin.builtin_models == ()


def test_price_power_labels_and_bounds_are_taken_from_the_pool() -> None:
    shape = shape_of(
        {
            "price": {"usdPerHour": "1.5"},
            "power": {"loadWatts": 300, "idleWatts": 100},
            "labels": {"team": "a"},
            "userCode": True,
            "resources": {"cpu": 4, "memory": "16Gi"},
            "devices": {"count": 2, "product": "NVIDIA-L4"},
        }
    )
    assert shape.price_nanousd_per_hour == 1_500_000_000
    assert (shape.power_w, shape.idle_w, shape.price_estimated) == (300.0, 100.0, False)
    assert (shape.labels, shape.allows_user_code) == ({"team": "a"}, True)
    assert (shape.cpus, shape.devices) == (4, 2)
    assert 14_000 < shape.host_memory_mib < 16 * 1024
    assert shape_of({}).price_estimated


def test_engines_of_plugins_are_offered_only_if_the_pool_lists_them() -> None:
    assert (
        shape_of({}).engines.keys() == shape_of({"engines": {"plugins": ["none"]}}).engines.keys()
    )


def test_a_pool_whose_workers_do_not_start_has_no_more_supply_until_one_does() -> None:
    object_ = make_pool({"maxReplicas": 3})
    pool = PoolEntry.of(object_, load_catalog())
    one, other = ConnectedWorker(pool.shape, 1.0), ConnectedWorker(pool.shape, 1.0)
    goes = ConnectedWorker(pool.shape, 1.0, draining=True)
    for now_s in (0.0, SUPPLY_PATIENCE_MIN_S):
        assert pool.view().supply is None
        pool.watch([one, goes], 2, now_s)
    assert (pool.view().supply, pool.view().most, pool.view().maximum) == (1, 1, 3)
    pool.watch([one, other], 2, SUPPLY_PATIENCE_MIN_S + 1.0)
    assert pool.view().most == 3


@pytest.mark.parametrize(("replicas", "wanted"), [(0, 2), (2, 0), (None, 0)])
def test_a_pool_whose_deployment_does_not_reach_the_target_counts_as_short_of_workers(
    replicas: int | None, wanted: int
) -> None:
    object_ = make_pool({"maxReplicas": 3})
    pool = PoolEntry.of(object_, load_catalog())
    pool.plan = ScalingPlan(wanted)
    for now_s in (0.0, SUPPLY_PATIENCE_MIN_S):
        pool.watch([], replicas, now_s)
    assert pool.view().supply == 0
    pool.plan = ScalingPlan(0)
    pool.watch([], 0, SUPPLY_PATIENCE_MIN_S + SUPPLY_RETRY_S)
    assert pool.view().supply is None


def test_a_pools_view_has_its_target_and_the_components_left_on_a_volume_claim() -> None:
    catalog, left = load_catalog(), Digest("c" * 64)
    known = {"maxReplicas": 1, "autoscaling": {"targetBacklog": "20s"}}
    for cache, near in (({"claimName": "weights"}, {left}), ({}, set())):
        object_ = make_pool({**known, "cache": cache})
        pool = PoolEntry.of(object_, catalog)
        kept = (Component(left, "disk", 10),)
        worker = ConnectedWorker(pool.shape, started_s=1.0, components=kept)
        pool.learn(worker)
        assert pool.view().local == near, "a fresh disk keeps nothing"
        assert pool.view().target_s == 20.0
        pool.change(make_pool({**known, "cache": {"claimName": "other"}}), catalog, now_s=2.0)
        assert pool.view().local == set()


def declared(spec: dict[str, Any]) -> PoolDeclaration:
    return pool_declaration(make_pool(spec), load_catalog())


@pytest.mark.parametrize(
    ("devices", "mib"),
    [
        ({"product": "NVIDIA-H200"}, 143_771 + 143_771 // 20),
        ({"product": "NVIDIA-NEW-ONE"}, 0),
        ({"product": "NVIDIA-NEW-ONE", "memory": "10Gi"}, 10_240),
        ({"product": "NVIDIA-H200", "memory": "10Gi"}, 10_240),
        ({}, 0),
    ],
)
def test_a_pool_declares_the_memory_of_its_devices_if_it_is_known(
    devices: dict[str, Any], mib: int
) -> None:
    found = declared({"devices": {"count": 2, **devices}})
    assert (found.devices, found.device_memory_mib) == (2, mib)


def test_a_pool_declares_its_spec_and_the_zone_that_its_pods_are_bound_to() -> None:
    found = declared(
        {
            "price": {"usdPerHour": "1.25"},
            "labels": {"tier": "low"},
            "userCode": True,
            "engines": {"flavor": "thin", "plugins": ["acme.solve"]},
            "nodeSelector": {"topology.kubernetes.io/zone": "a"},
        }
    )
    assert found.price_nanousd_per_hour == 1_250_000_000
    assert (found.labels, found.zone, found.allows_user_code) == ({"tier": "low"}, "a", True)
    assert "acme.solve" in found.engines
    assert not any(name.startswith("train.") for name in found.engines)
    assert (found.devices, found.device_memory_mib) == (0, 0)


def test_an_honest_worker_is_not_changed_by_the_pools_bounds() -> None:
    for spec in ({}, {"devices": {"product": "NVIDIA-H200"}}, {"price": {"usdPerHour": "2"}}):
        shape = shape_of(spec)
        assert declared(spec).bound(shape) == shape


def test_the_condition_names_the_workers_that_break_the_protocol() -> None:
    shape = shape_of({})
    bad = ConnectedWorker(structs.replace(shape, name="cpu-1"), 1.0, distrusted=True)
    good = ConnectedWorker(structs.replace(shape, name="cpu-2"), 1.0)
    assert distrust([good]) == ConditionUpdate(
        PoolCondition.WORKER_DISTRUSTED, False, PoolReason.NO_VIOLATIONS
    )
    found = distrust([good, bad])
    assert (found.holds, found.reason) == (True, PoolReason.PROTOCOL_VIOLATIONS)
    assert "cpu-1" in found.message
    assert "cpu-2" not in found.message
    assert "delete the pod" in found.message
    many = [ConnectedWorker(structs.replace(shape, name=f"w{n}"), 1.0, distrusted=True)
            for n in range(20)]  # fmt: skip
    assert "and 12 more" in distrust(many).message
