"""Ranges of forecasts: steps that are not known yet are estimated by what they will read."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import Place, place
from tests.flowmesh_control.fabric import machine_of, workflow
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_api.v1.plan import Forecast, PlannedStep
from flowmesh_core.costmodel.model import CostKey
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.protocol.messages import EngineVariant
from flowmesh_core.units import Digest

ROWS = [{"question": f"What is {n} and {n}?"} for n in range(100)]
BASE = {"model": "smollm2-135m-instruct"}
GIB_IN_MIB = 1024


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    """Yields a fabric that never ran anything, with one worker for all engines."""
    async with place() as there:
        engines = {contract.name: contract.versions for contract in builtin_catalog()}
        variants = tuple(
            EngineVariant(name, implementation, ("float32",))
            for name in engines
            for implementation in ("vllm", "transformers")
        )
        shape = {
            "engines": engines,
            "variants": variants,
            "builtin_models": ("smollm2-135m-instruct",),
            "device_memory_mib": 32 * GIB_IN_MIB,
            "host_memory_mib": 32 * GIB_IN_MIB,
        }
        await there.join("w", shape=shape)
        yield there


def asking(name: str, rows: str, **more: Any) -> dict[str, Any]:
    """Returns a step that generates."""
    params = {"prompt": "{{ question }}", "maxTokens": 8, "dtype": "float32", **more}
    inputs = {"model": "inputs.base", "rows": rows}
    return {"name": name, "uses": "llm.generate", "inputs": inputs, "with": params}


EMBEDDING = {
    "name": "e",
    "uses": "llm.embed",
    "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
    "with": {"column": "question", "dtype": "float32"},
}


def picking(query: str) -> dict[str, Any]:
    inputs = {"rows": "inputs.rows"}
    return {"name": "pick", "uses": "data.sql", "inputs": inputs, "with": {"query": query}}


async def planned(
    there: Place, *steps: dict[str, Any], base: dict[str, Any] = BASE, **spec: Any
) -> tuple[Forecast, dict[str, PlannedStep]]:
    inputs = {"base": base, "rows": {"rows": ROWS}}
    document = workflow("w", {"inputs": inputs, "steps": list(steps), **spec})
    data = await there.post("/v1/plan", {"document": document})
    forecast = msgspec.json.decode(data, type=Forecast)
    return forecast, {step.path: step for step in forecast.steps}


async def test_a_workflow_that_never_ran_has_a_range_that_is_eight_times_as_wide_as_low(
    there: Place,
) -> None:
    forecast, _ = await planned(there, picking("select * from rows"), asking("a", "pick.rows"))
    assert 0 < forecast.low_seconds < forecast.seconds < forecast.high_seconds
    assert forecast.high_seconds == pytest.approx(8 * forecast.low_seconds)
    assert forecast.high_nanousd == pytest.approx(8 * forecast.low_nanousd, rel=1e-3)
    assert forecast.unmeasured == len(forecast.steps)


async def test_a_step_that_is_not_known_yet_is_estimated_by_the_rows_that_it_will_read(
    there: Place,
) -> None:
    _, many = await planned(there, picking("select * from rows"), asking("a", "pick.rows"))
    _, few = await planned(there, picking("select * from rows limit 4"), asking("a", "pick.rows"))
    _, sampled = await planned(
        there, picking("select * from rows limit 4"), asking("a", "pick.rows", samples=25)
    )
    assert many["a"].expect == few["a"].expect == "unknown"
    load_s = (25 * few["a"].seconds - many["a"].seconds) / 24
    assert 20 < load_s < few["a"].seconds < many["a"].seconds
    assert few["a"].seconds < sampled["a"].seconds
    assert (many["a"].actions, many["a"].sure) == (0, "guess")


async def test_a_model_that_several_steps_use_is_loaded_once(there: Place) -> None:
    steps = [asking("a", "inputs.rows"), asking("b", "inputs.rows", maxTokens=9)]
    _, found = await planned(there, *steps)
    assert found["b"].seconds < found["a"].seconds - 20


async def test_a_model_of_unknown_size_leaves_a_range_without_an_upper_end(there: Place) -> None:
    forecast, _ = await planned(
        there, asking("a", "inputs.rows"), base={"model": "hf://Qwen/Qwen3-0.6B"}
    )
    assert (forecast.high_nanousd, forecast.high_seconds) == (0, 0.0)
    assert forecast.low_seconds > 0


async def test_a_budget_within_the_range_is_not_refused(there: Place) -> None:
    steps = (picking("select * from rows"), asking("a", "pick.rows"))
    forecast, _ = await planned(there, *steps)
    within = (forecast.low_nanousd + 1000) / 1e9
    kept, _ = await planned(there, *steps, budgetUsd=f"{within:.9f}")
    assert kept.refusals == ()
    refused, _ = await planned(there, *steps, budgetUsd=f"{forecast.low_nanousd / 2e9:.9f}")
    assert "spec.budgetUsd: expected to cost at least" in refused.refusals[0]


async def test_what_such_workers_have_done_before_is_expected_within_a_factor_of_two(
    there: Place,
) -> None:
    model = machine_of(there.control).state.model
    model.observe(CostKey("data.sql", Digest("0" * 64)), WorkSize(100.0), 0.5, 1.0, "cpu")
    forecast, found = await planned(there, picking("select * from rows"))
    assert found["pick"].sure == "measured"
    assert forecast.low_seconds < found["pick"].seconds < forecast.high_seconds
    assert forecast.high_seconds == pytest.approx(2 * forecast.low_seconds)
    assert forecast.high_nanousd == pytest.approx(2 * forecast.low_nanousd, rel=1e-2)


def tuning(name: str, **more: Any) -> dict[str, Any]:
    """Returns a step that trains."""
    params = {"prompt": "{{ question }}", "completion": "{{ question }}", "dtype": "float32"}
    inputs = {"model": "inputs.base", "rows": "inputs.rows"}
    return {"name": name, "uses": "train.sft", "inputs": inputs, "with": {**params, **more}}


async def test_a_training_step_takes_as_long_as_it_has_samples(there: Place) -> None:
    """On 100 rows: 10 steps of 8, twice as many, and 6 epochs."""
    seconds = []
    for more in ({"max_steps": 10}, {"max_steps": 20}, {"num_train_epochs": 6}):
        _, found = await planned(there, tuning("t", per_device_train_batch_size=8, **more))
        seconds.append(found["t"].seconds)
    short, long, epochs = seconds
    assert long - short > 1
    assert epochs - short == pytest.approx((long - short) * (600 - 80) / 80)


async def test_an_engine_that_captures_no_graphs_starts_sooner(there: Place) -> None:
    _, found = await planned(there, EMBEDDING, asking("a", "inputs.rows", maxTokens=1))
    assert 1 < found["e"].seconds < found["a"].seconds - 10


async def test_steps_beside_each_other_share_their_engine_and_its_price(there: Place) -> None:
    """The run takes at least the engine's start and all that it runs, and pays no second twice."""
    steps = [asking(name, "inputs.rows", seed=seed) for seed, name in enumerate("abcd")]
    alone, _ = await planned(there, steps[0])
    forecast, found = await planned(there, *steps)
    load_s = found["a"].seconds - found["b"].seconds
    running_s = sum(found[name].seconds for name in "abcd") - load_s
    assert forecast.seconds == pytest.approx(load_s + running_s, rel=0.2)
    assert running_s < 4 * (alone.seconds - load_s), "a batch takes less than its actions alone"
    price = alone.nanousd / alone.seconds
    assert forecast.nanousd == pytest.approx(price * forecast.seconds, rel=0.01)


async def test_engines_that_start_beside_each_other_are_paid_by_the_clock(there: Place) -> None:
    """A worker's second costs the same whatever it does in it."""
    one, _ = await planned(there, asking("a", "inputs.rows"))
    two, _ = await planned(there, EMBEDDING, asking("a", "inputs.rows"))
    price = one.nanousd / one.seconds
    assert two.nanousd == pytest.approx(price * two.seconds, rel=0.01)
    assert two.high_nanousd == pytest.approx(8 * two.low_nanousd, rel=1e-3)


async def test_the_step_that_begins_first_waits_for_the_engine(there: Place) -> None:
    """Not the first in the plan: here the one that reads what others make."""
    steps = [EMBEDDING, asking("late", "e.rows"), asking("soon", "inputs.rows")]
    forecast, found = await planned(there, *steps)
    assert found["soon"].seconds > found["late"].seconds + 10
    assert forecast.seconds < found["e"].seconds + found["soon"].seconds + found["late"].seconds


async def test_equal_actions_of_several_steps_are_counted_and_paid_once(there: Place) -> None:
    """As in the run, in which the second step gets what the first one made."""
    first = picking("select * from rows")
    second, other = {**first, "name": "same"}, {**picking("select 1 as a"), "name": "other"}
    after = {**picking("select * from t"), "name": "after", "inputs": {"t": "same.rows"}}
    one, _ = await planned(there, first, {**after, "inputs": {"t": "pick.rows"}})
    two, found = await planned(there, first, second, after)
    assert (found["pick"].actions, found["same"].actions) == (1, 1)
    assert two.actions == one.actions == 1
    assert two.nanousd == one.nanousd > found["pick"].nanousd > found["same"].nanousd == 0
    assert (two.low_nanousd, two.high_nanousd) == (one.low_nanousd, one.high_nanousd)
    assert (two.joules, two.batches) == (one.joules, one.batches)
    assert two.seconds == pytest.approx(one.seconds), "what follows it waits for it"
    assert found["same"].seconds == found["pick"].seconds
    assert found["same"].worker == found["pick"].worker
    assert found["same"].detail == "the same actions as in steps above"
    three, _ = await planned(there, first, second, other)
    assert three.actions == 2
