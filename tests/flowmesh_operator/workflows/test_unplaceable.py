"""A workflow object that no pool can run is refused with what the pools have, until one can."""

from tests.attacks.by_hand import place, until
from tests.flowmesh_operator.pool_builder import make_pool
from tests.flowmesh_operator.workflows.test_quota_waits import Mirror, Shown, controller_of, obj

from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.status.conditions import WorkflowCondition, WorkflowReason
from flowmesh_operator.pools.pool import PoolEntry

STEPS = [
    {
        "name": "a",
        "uses": "test.noop",
        "with": {"value": 1},
        "resources": {"labels": {"zone": "mars"}},
    },
    {
        "name": "b",
        "uses": "llm.generate",
        "with": {"prompt": "{{ q }}", "dtype": "float32"},
        "inputs": {"model": "inputs.m", "rows": "inputs.rows"},
    },
]
INPUTS = {"m": {"model": "smollm2-135m-instruct"}, "rows": {"rows": [{"q": "x"}]}}


def view(name: str, zone: str, flavor: str) -> PoolView:
    spec = {"labels": {"zone": zone}, "engines": {"flavor": flavor}}
    return PoolEntry.of(make_pool(spec, name), load_catalog()).view()


async def test_an_object_that_no_pool_can_run_waits_until_a_pool_is_applied_that_can() -> None:
    async with place() as there:
        pools = [view("thin", "eu", "thin")]
        there.control.services.signals.declare(lambda: pools)
        wanted = obj("a", steps=STEPS, inputs=INPUTS)
        mirror, shown = Mirror({"a": wanted}), Shown()
        controller = controller_of(there, mirror, shown)
        await controller._reconcile("a")
        (accepted,) = shown.last["a"] or []
        assert (accepted.type, accepted.holds) == (WorkflowCondition.ACCEPTED, False)
        assert accepted.reason is WorkflowReason.UNPLACEABLE
        for said in (
            "spec.inputs.m: step 'inputs.m': no worker offers model.import (pool thin)",
            "spec.steps[0].resources.labels.zone: step 'a': no worker has the label zone: mars;"
            " there is zone: eu (pool thin)",
            "spec.steps[1].uses: step 'b': no worker offers llm.generate (pool thin)",
        ):
            assert said in accepted.message
        assert there.control.services.runs.live_uids() == set()
        pools.append(view("mars", "mars", "cpu"))  # without any worker
        controller._backoffs.clear()
        await controller._reconcile("a")
        assert shown.last["a"] is None
        await until(lambda: there.control.services.runs.live_uids() == {"a"})
