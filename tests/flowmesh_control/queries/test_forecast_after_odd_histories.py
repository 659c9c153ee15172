"""Forecasts after histories that are not the usual: figures stay finite, in order, and above 0."""

import asyncio
import math
import random
from collections.abc import Iterator

import msgspec
import pytest
from tests.flowmesh_control.queries.test_forecast import planner_of
from tests.flowmesh_core.machine.world import CALL, MANY, NOOP, SOLO, World, after, plan, step

from flowmesh_api.v1.plan import Forecast
from flowmesh_control.runs.admission import Compiled
from flowmesh_core.graph.plan import Plan
from flowmesh_core.machine import events as e
from flowmesh_core.machine.settings import Settings
from flowmesh_core.protocol.results import Usage
from flowmesh_core.sharing.scopes import plan_scopes

FAILURES = ("user-code", "out-of-memory", "host-crashed", "timeout", "store", "bad-input", "engine")
SECONDS = (0.0, 0.0, 1e-9, 1e-4, 0.5, 3600.0, 1e9)


def forecast(world: World, made: Plan) -> Forecast:
    compiled = Compiled({}, made, plan_scopes([], made.namespace), {}, {})
    return asyncio.run(planner_of(world).forecast(compiled))


def numbers(value: object) -> Iterator[float]:
    """All numbers of a document."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from numbers(inner)
    elif isinstance(value, float | int):
        yield value


def check(found: Forecast) -> None:
    assert all(math.isfinite(n) and n >= 0 for n in numbers(msgspec.to_builtins(found))), found
    assert found.low_seconds <= found.seconds * (1 + 1e-9)
    assert found.low_nanousd <= found.nanousd + len(found.steps) + 1
    if found.high_seconds:
        assert found.seconds <= found.high_seconds * (1 + 1e-9)
        assert found.nanousd <= found.high_nanousd + len(found.steps) + 1
    assert found.least_seconds <= found.seconds * (1 + 1e-9)
    assert len(msgspec.json.encode(found)) > 2


def workflow(number: int = 0) -> Plan:
    """Two steps beside each other, and one after both."""
    steps = (step("a", n=number), step("b", uses=SOLO, n=number), step("c", *after("a", "b")))
    return plan(*steps)


def fabric(price: int = 10**9) -> World:
    world = World(settings=Settings(watchdog_s=1e9))
    world.join("w", price_nanousd_per_hour=price)
    return world


@pytest.mark.parametrize("price", [0, 10**9])
def test_after_steps_that_took_no_time(price: int) -> None:
    world = fabric(price)
    for number in range(12):
        world.submit(workflow(number))
        while world.machine.state.runs:
            world.tick(0.0)
            for one in world.attempts():
                world.finish(one.attempt_id, usage=Usage())
        check(forecast(world, workflow(number)))
    found = forecast(world, workflow(100))
    check(found)
    assert {one.sure for one in found.steps if one.expect == "run"} == {"measured"}
    assert found.high_seconds > 0


def test_after_a_run_that_failed_half_and_after_one_that_was_cancelled() -> None:
    world = fabric()
    failed = world.submit(workflow())
    world.tick(1.0)
    of = {one.engine: one.attempt_id for one in world.attempts()}
    world.finish(of[NOOP.name])
    world.fail(of[SOLO.name], "user-code")
    world.tick(1.0)
    assert world.finals[failed].phase == "Failed"
    check(forecast(world, workflow()))
    cancelled = world.submit(workflow(1))
    world.tick(0.0)
    world.begin(world.attempts()[0].attempt_id)
    world.apply(e.CancelRequested(cancelled, "no more wanted"))
    world.tick(0.0)
    assert world.finals[cancelled].phase == "Cancelled"
    for number in (0, 1, 2):
        check(forecast(world, workflow(number)))


@pytest.mark.parametrize("seed", [1, 2, 3, pytest.param(random.randrange(1 << 30), id="fresh")])
def test_after_random_histories(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    rng = random.Random(seed)
    world = fabric(rng.choice((0, 1, 10**9, 10**12)))
    for number in range(120):
        act(world, rng, number)
        if number % 6 == 0:
            check(forecast(world, workflow(rng.randrange(number + 1))))


def act(world: World, rng: random.Random, number: int) -> None:
    attempts = [one.attempt_id for one in world.attempts()]
    one = rng.choice(attempts) if attempts else ""
    kind = rng.choice(("submit", "tick", "finish", "finish", "fail", "cancel", "lose", "loads"))
    runs = sorted(world.machine.state.runs)
    if kind == "submit":
        uses = rng.choice((NOOP, SOLO, MANY, CALL))
        world.submit(plan(step("x", uses=uses, n=number), step("y", *after("x"), n=number)))
    elif kind == "tick" or not attempts:
        world.tick(rng.choice(SECONDS[:5]))
    elif kind == "finish":
        units = rng.choice((0, 1, 10**9))
        usage = Usage(units=units, run_s=rng.choice(SECONDS), load_s=rng.choice(SECONDS))
        world.finish(one, usage=usage)
    elif kind == "fail":
        world.fail(one, rng.choice(FAILURES), run_s=rng.choice(SECONDS))
    elif kind == "loads":
        world.loads(one)
    elif kind == "cancel" and runs:
        world.apply(e.CancelRequested(rng.choice(runs), "no more wanted"))
    elif kind == "lose":
        world.lose(world.worker_of(one))
        world.join(f"w{number}")
