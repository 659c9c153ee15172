"""What no pool can ever meet is refused at admission; what an empty pool can is not."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.flowmesh_control.queries.test_forecast import planner_of, pool
from tests.flowmesh_core.machine.world import (
    CALL,
    CODE,
    CONTRACTS,
    NOOP,
    World,
    after,
    metrics,
    plan,
    shape,
    step,
)

from flowmesh_control.errors import UnplaceableError
from flowmesh_control.queries.unplaceable import WorkerOffer, unplaceable_steps
from flowmesh_control.runs.admission import Compiled
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.fleet.pool_declaration import UNKNOWN_CLASS, PoolDeclaration
from flowmesh_core.graph.plan import Resources, StepPlan
from flowmesh_core.machine.settings import Settings
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.sharing.scopes import plan_scopes

CATALOG = Catalog(CONTRACTS)
GIB = 1024
ASKED = Resources(
    memory_mib=900 * GIB,
    gpu_product=("nvidia-h100",),
    tensor_parallel=4,
    labels={"zone": "mars"},
)
BIG = WorkerOffer(
    shape(
        "big",
        pool="big",
        device_class="nvidia-h100",
        devices=4,
        device_memory_mib=1000 * GIB,
        labels={"zone": "mars"},
    )
)
SMALL = WorkerOffer(shape("small", pool="small", labels={"zone": "eu"}))
CODE_WORKER = shape("code", pool="code", allows_user_code=True)


def found(*steps: StepPlan, offers: tuple[WorkerOffer, ...], **more: Any) -> dict[str, str]:
    places = {s.name: f"spec.steps[{i}]" for i, s in enumerate(steps)}
    problems = unplaceable_steps(plan(*steps), CATALOG, offers, places, **more)
    return {p.path: p.message for of_step in problems.values() for p in of_step}


def compiled(*steps: StepPlan) -> Compiled:
    document = {"spec": {"steps": [{"name": s.name} for s in steps]}}
    return Compiled(document, plan(*steps), plan_scopes([], "team-a"), {}, {})


def test_each_constraint_that_no_worker_meets_is_named_with_what_there_is() -> None:
    assert found(step("a"), step("b", resources=ASKED), offers=(SMALL,)) == {
        "spec.steps[1].resources.labels.zone": "step 'b': no worker has the label zone: mars;"
        " there is zone: eu (pool small)",
        "spec.steps[1].resources.gpuProduct": "step 'b': no worker has nvidia-h100;"
        " there is cpu (pool small)",
        "spec.steps[1].resources.tensorParallel": "step 'b': no worker has 4 devices;"
        " there is 1 (pool small)",
        "spec.steps[1].resources.memory": "step 'b': no worker has 921,600 MiB of memory for one"
        " engine; there is 4,096 MiB (pool small)",
    }
    assert found(step("b", resources=ASKED), offers=(SMALL, BIG)) == {}


def test_constraints_that_no_worker_meets_together_are_named_together() -> None:
    apart = Resources(labels={"zone": "eu"}, gpu_product=("nvidia-h100",))
    assert found(step("a", resources=apart), offers=(SMALL, BIG)) == {
        "spec.steps[0]": "step 'a': no worker meets resources.labels.zone, resources.gpuProduct,"
        " resources.memory together, though some meet each"
    }


def test_an_engine_that_no_worker_offers_and_user_code_that_none_allows_are_named() -> None:
    only = WorkerOffer(shape("thin", pool="thin", engines={NOOP.name: NOOP.versions}))
    assert found(step("a", uses=CALL), offers=(only,)) == {
        "spec.steps[0].uses": "step 'a': no worker offers test.call (pool thin); add a pool whose"
        " image has it"
    }
    assert found(step("a", uses=CODE), offers=(SMALL,)) == {
        "spec.steps[0].uses": "step 'a': test.code runs the user's code, and no worker with it"
        " (pool small) may; use a pool with userCode: true"
    }
    assert found(step("a", uses=CODE), offers=(SMALL, WorkerOffer(CODE_WORKER))) == {}


def test_labels_that_must_not_be_there_are_named() -> None:
    not_here = Resources(anti_labels={"zone": "eu"})
    assert found(step("a", resources=not_here), offers=(SMALL,)) == {
        "spec.steps[0].resources.antiLabels.zone": "step 'a': every worker has the label zone: eu"
    }


def test_steps_that_may_be_skipped_or_are_published_are_not_refused() -> None:
    first = step("a", resources=ASKED, when="false")
    second = step("b", *after("a"), resources=ASKED)
    assert found(first, second, offers=(SMALL,)) == {}
    assert found(step("a", resources=ASKED), offers=(SMALL,), ended={"a"}) == {}


def test_other_versions_reservations_and_trust_refuse_nothing() -> None:
    old = {NOOP.name: NOOP.versions._replace(version=7)}
    assert found(step("a"), offers=(WorkerOffer(shape("w", engines=old, trust=0)),)) == {}


def test_a_pool_counts_with_what_it_declares_and_not_for_what_it_does_not_say() -> None:
    given = {"price_nanousd_per_hour": 0, "price_estimated": True, "power_w": 0.0, "idle_w": 0.0}
    given |= {"labels": {}, "zone": "", "allows_user_code": False, "sandbox_minimum": ""}
    given |= {"engines": frozenset(), "host_memory_mib": 4096, "cpus": 1}

    def declared(kind: str, memory_mib: int) -> WorkerOffer:
        offered = shape("p", device_class=kind, devices=1, device_memory_mib=15_360)
        declaration = PoolDeclaration(**given, devices=1, device_memory_mib=memory_mib)
        return WorkerOffer.of_pool(PoolView("p", offered, declaration=declaration))

    large = step("a", resources=Resources(memory_mib=40 * GIB))
    product = step("a", resources=Resources(gpu_product=("nvidia-h100",)))
    assert len(found(large, offers=(declared("nvidia-l4", 15_360),))) == 1
    assert len(found(product, offers=(declared("nvidia-l4", 15_360),))) == 1
    assert found(large, offers=(declared("nvidia-new", 0),)) == {}
    assert found(product, offers=(declared(UNKNOWN_CLASS, 0),)) == {}
    assert found(large, offers=(declared(UNKNOWN_CLASS, 0),)) == {}
    of_any_product = found(large, offers=(declared(UNKNOWN_CLASS, 15_360),))
    assert of_any_product == {
        "spec.steps[0].resources.memory": "step 'a': no worker has 40,960 MiB of memory for one"
        " engine; there is 15,360 MiB (pool default)"
    }
    assert found(product, offers=(declared(UNKNOWN_CLASS, 15_360),)) == {}


async def test_a_workflow_that_no_pool_can_run_is_refused_and_one_of_an_empty_pool_is_not() -> None:
    wanted = compiled(step("a", resources=ASKED))
    small = planner_of(World(), pool("cheap"))
    with pytest.raises(UnplaceableError, match=r"w: spec\.steps\[0\]\.resources\.labels\.zone: st"):
        await small.check_terms(wanted)
    forecast = await small.forecast(wanted)
    assert len(forecast.refusals) == 4
    await planner_of(World(), PoolView("big", BIG.shape), pool("cheap")).check_terms(wanted)
    await planner_of(World()).check_terms(wanted)  # pools may be declared later


class Published:
    """A cache that has every result."""

    async def lookup(self, action_id: str, *_: Any, **__: Any) -> Any:
        made = {"metrics": metrics(value=1)}
        result = ActionResult(action_id, 0, NOOP.name, 1, 1, {}, made, namespace="team-a")
        return SimpleNamespace(result=result)


async def test_a_workflow_whose_results_are_published_needs_no_pool() -> None:
    wanted = compiled(step("a", resources=ASKED))
    planner = planner_of(World(), pool("cheap"))
    cast("Any", planner)._cache = Published()
    await planner.check_terms(wanted)
    forecast = await planner.forecast(wanted)
    assert (forecast.steps[0].expect, forecast.refusals) == ("hit", ())


async def test_a_fleet_that_cannot_grow_is_asked_once_its_workers_are_there() -> None:
    wanted = compiled(step("a", resources=ASKED))
    growing, fixed = World(), World(settings=Settings(unplaceable_after_s=20.0))
    for world in (growing, fixed):
        world.join("w1")
    await planner_of(fixed).check_terms(wanted)  # another worker may come
    for world in (growing, fixed):
        world.now += 5.0
    await planner_of(growing).check_terms(wanted)
    with pytest.raises(UnplaceableError, match="no worker has 4 devices"):
        await planner_of(fixed).check_terms(wanted)
