"""Component hosts form batches by what later stages need, by their share of the target, and by age.

Each behaviour has a test that takes it away, where what the first one asserts does not hold.
"""

import asyncio
import random
from collections.abc import Sequence

import msgspec
import pytest
from tests.flowmesh_worker.staged_hosts import (
    BATCH_MAX,
    SIZES,
    Curve,
    CurveRunner,
    RanBatch,
    StagedHosts,
    new_call,
    new_host,
)
from tests.virtual_time import in_virtual_time

from flowmesh_core.protocol.serving import ComponentCall
from flowmesh_core.serving.queue.waiting_call import WaitingCall
from flowmesh_core.stages.stage_timing import UNTIMED, StageTiming
from flowmesh_sim.serving.call_arrivals import arrival_times
from flowmesh_worker.engines.code import component_batches, component_queue
from flowmesh_worker.engines.code.chain_results import LateError
from flowmesh_worker.engines.code.component_batches import ComponentBatches

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")


def linear(base_s: float, each_s: float) -> Curve:
    return lambda size: base_s + each_s * size


def announce(seed: int) -> random.Random:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    return random.Random(seed)


# -- what the stages after it need -----------------------------------------------------------------

TWO_STAGES = (linear(0.01, 0.01), linear(0.046, 0.0005))
"""The first takes 10 ms more with each member; the second about 47 ms, however many there are."""
TWO_TARGET_S = 0.1


async def first_batches(rest_s: float) -> tuple[list[int], int]:
    """Sends eight requests at once; returns the first stage's batches, and who was in time."""
    timings = StageTiming(rest_s=rest_s), UNTIMED
    service = StagedHosts(TWO_STAGES, TWO_TARGET_S, timings)
    await service.ask_all([0.0] * 8)
    return [len(ran.members) for ran in service.runners[0].log], service.in_time()


@in_virtual_time
async def test_a_batch_of_the_first_stage_leaves_the_second_its_time() -> None:
    """Of 100 ms the second stage needs 46.5 alone: four take 50 ms, and five take too long."""
    sizes, in_time = await first_batches(rest_s=0.0465)
    assert sizes[0] == 4
    assert in_time == 4


@in_virtual_time
async def test_without_the_rest_the_first_batch_takes_the_time_of_the_second_stage() -> None:
    sizes, in_time = await first_batches(rest_s=0.0)
    assert sizes == [8]
    assert in_time == 0


@in_virtual_time
async def test_a_call_that_leaves_the_later_stages_too_little_is_refused_before_it_runs() -> None:
    runner = CurveRunner({"a": linear(0.01, 0.01)})
    host = new_host(runner, "refuse")
    in_time = host.call(new_call("a", "in-time", 100, StageTiming(rest_s=0.079)))
    late = host.call(new_call("a", "late", 100, StageTiming(rest_s=0.081)))
    with pytest.raises(LateError):
        await late
    await in_time
    assert [ran.members for ran in runner.log] == [("in-time",)]
    await host.close()


@in_virtual_time
async def test_a_component_that_a_request_visits_again_counts_its_batch_twice() -> None:
    """100 ms for two visits and 18 ms between them: 41 ms each, and three members take 40."""
    runner = CurveRunner({"a": linear(0.01, 0.01)})
    host = new_host(runner)
    twice = StageTiming(visits=2, rest_s=0.018)
    await asyncio.gather(*(host.call(new_call("a", f"r{n}", 100, twice)) for n in range(8)))
    assert len(runner.log[0].members) == 3
    await host.close()


def test_frames_of_an_older_control_plane_have_no_timing() -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(new_call("a", "r")))
    older = msgspec.msgpack.encode(fields[:-1])
    assert msgspec.msgpack.decode(older, type=ComponentCall).timing == UNTIMED


# -- its share of the target -----------------------------------------------------------------------


def largest_within(curve: Curve, target_s: float) -> int:
    """The largest batch within a share of the target, by the curve itself."""
    return max((b for b in range(1, BATCH_MAX + 1) if curve(b) <= target_s), default=1)


async def saturated(curve: Curve, target_s: float, measured: Sequence[int]) -> list[int]:
    """Returns the sizes of batches while more calls wait than any batch takes."""
    runner = CurveRunner({"a": curve})
    host = new_host(runner, measured=measured)
    timing = StageTiming(target_s)
    for round_number in range(8):
        waiting = [host.call(new_call("a", f"r{round_number}.{n}", 0, timing)) for n in range(100)]
        await asyncio.gather(*waiting, return_exceptions=True)
    await host.close()
    return [len(ran.members) for ran in runner.log]


@pytest.mark.parametrize("seed", [1, FRESH])
@in_virtual_time
async def test_no_batch_takes_longer_than_the_share_of_its_component(seed: int) -> None:
    rng = announce(seed)
    for _ in range(10):
        curve = linear(rng.uniform(0.002, 0.02), rng.uniform(0.0005, 0.003))
        target_s = rng.uniform(0.8, 10.0) * curve(1)
        sizes = await saturated(curve, target_s, SIZES)
        every = range(1, BATCH_MAX + 1)
        knee = next(b for b in SIZES if b / curve(b) >= 0.95 * max(c / curve(c) for c in every))
        assert max(sizes) == min(knee, largest_within(curve, target_s))


@in_virtual_time
async def test_without_a_share_batches_are_as_large_as_is_fast() -> None:
    curve = linear(0.01, 0.002)
    assert max(await saturated(curve, 0.0, SIZES)) == 48
    assert max(await saturated(curve, 0.031, SIZES)) == 10


@in_virtual_time
async def test_sizes_that_were_not_measured_are_tried_until_one_is_too_slow() -> None:
    """Two take hardly longer than one: a share of 1.5 times one must not keep it from trying."""
    curve = linear(0.020, 0.001)
    sizes = await saturated(curve, 1.5 * curve(1), ())
    within = largest_within(curve, 1.5 * curve(1))
    assert within == 11
    assert [size for size in sizes if size > within] == [within + 1], "one batch, to measure it"
    assert sizes.count(within) > len(sizes) / 2


# -- bursts ----------------------------------------------------------------------------------------

STAGE = linear(0.01, 0.002)
"""As a component of Vortex: with a target of 60 ms the largest batch has 25 calls."""
SINGLE_TARGET_S = 0.06
FOUR_TARGET_S = 0.25


def waves(seed: int) -> list[float]:
    """Half seconds a little above what a component can do, and half seconds of rest after each."""
    rng = announce(seed)
    arrivals_s: list[float] = []
    for second in range(5):
        at_s = float(second)
        while at_s < second + 1:
            at_s += rng.expovariate(440.0 if at_s - second < 0.5 else 60.0)
            arrivals_s.append(at_s)
    return sorted(arrivals_s)


def groups(seed: int) -> list[float]:
    """Some thirty requests at once, now and then."""
    rng, at_s = announce(seed), 0.0
    arrivals_s: list[float] = []
    for _ in range(12):
        at_s += rng.uniform(0.3, 0.6)
        arrivals_s += [at_s] * rng.randint(26, 36)
    return arrivals_s


async def missed(arrivals_s: Sequence[float], latency_s: float, stages: int) -> float:
    """Returns the share of requests that are late or refused, through hosts of equal stages."""
    alone_s = STAGE(1)
    timings = [StageTiming(latency_s / stages, 1, alone_s * n) for n in reversed(range(stages))]
    service = StagedHosts([STAGE] * stages, latency_s, timings, "refuse")
    await service.ask_all(arrivals_s)
    return 1 - service.in_time() / len(arrivals_s)


@pytest.mark.parametrize("seed", [1, FRESH])
@in_virtual_time
async def test_without_caps_three_times_as_many_requests_of_bursts_are_late(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large batch takes the time of the stages after it, though it leaves what one call needs."""
    arrivals_s = groups(seed)
    capped = await missed(arrivals_s, FOUR_TARGET_S, 4)
    assert 0 < capped < 0.25
    monkeypatch.setattr(component_queue.ComponentQueue, "cap", BATCH_MAX)
    assert await missed(arrivals_s, FOUR_TARGET_S, 4) >= 3 * capped


@pytest.mark.parametrize("seed", [1, FRESH])
@in_virtual_time
async def test_without_deadlines_three_times_as_many_requests_of_bursts_are_late(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that are late already take the time of those that could be answered."""
    arrivals_s = waves(seed)
    timely = await missed(arrivals_s, SINGLE_TARGET_S, 1)
    assert 0 < timely < 0.25

    def without(name: str, deadline_s: float, visits: int, rest_s: float) -> WaitingCall:
        return WaitingCall(name, deadline_s + 1e6, visits, rest_s)

    monkeypatch.setattr(component_batches, "WaitingCall", without)
    assert await missed(arrivals_s, SINGLE_TARGET_S, 1) >= 3 * timely


# -- it never waits --------------------------------------------------------------------------------

IDLE_S = 0.001


def longest_idle_s(arrivals_s: Sequence[float], log: Sequence[RanBatch]) -> float:
    """The longest time for which a host was idle while a call waited."""
    waiting = {f"r{n}": at_s for n, at_s in enumerate(arrivals_s)}
    longest_s, ended_s = 0.0, 0.0
    for ran in log:
        longest_s = max(longest_s, ran.began_s - max(ended_s, min(waiting.values())))
        for member in ran.members:
            del waiting[member]
        ended_s = ran.ended_s
    assert not waiting
    return longest_s


async def idle_s(seed: int) -> float:
    rng = announce(seed)
    arrivals_s = arrival_times(rng.choice(("poisson", "gamma")), 150.0, 5.0, rng)
    service = StagedHosts([STAGE], FOUR_TARGET_S, [StageTiming(SINGLE_TARGET_S)])
    await service.ask_all(arrivals_s)
    return longest_idle_s(arrivals_s, service.runners[0].log)


@pytest.mark.parametrize("seed", [1, 2, FRESH])
@in_virtual_time
async def test_an_idle_host_begins_within_a_millisecond_and_never_waits_to_fill(seed: int) -> None:
    assert await idle_s(seed) <= IDLE_S


@in_virtual_time
async def test_a_host_that_waits_to_fill_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ComponentBatches._run

    async def waits(batches: ComponentBatches) -> None:
        await asyncio.sleep(2 * IDLE_S)
        await run(batches)

    monkeypatch.setattr(ComponentBatches, "_run", waits)
    assert await idle_s(1) > IDLE_S


# -- age -------------------------------------------------------------------------------------------

SHORT_S, LONG_S = 0.01, 0.1


async def long_batches(others: int, target_s: float, seconds: float) -> tuple[float, float]:
    """Runs one long component beside short ones, each with a call that always waits.

    Returns:
        When its first batch began, and its part of the time.
    """
    curves = {f"short{n}": linear(SHORT_S, 0.0) for n in range(others)} | {
        "long": linear(LONG_S, 0)
    }
    runner = CurveRunner(curves)
    host = new_host(runner, "serve", batch_max=1)

    async def always(name: str) -> None:
        timing = StageTiming(target_s if name == "long" else 100.0)
        number = 0
        while asyncio.get_running_loop().time() < seconds:
            number += 1
            await host.call(new_call(name, f"{name}.{number}", 1, timing))

    await asyncio.gather(*(always(name) for name in curves))
    await host.close()
    found = [ran for ran in runner.log if ran.component == "long" and ran.began_s < seconds]
    return found[0].began_s, sum(r.ended_s - r.began_s for r in found) / seconds


@in_virtual_time
async def test_work_that_waits_for_five_times_its_share_of_the_target_is_next() -> None:
    """By its part of the device it would be next after ten batches of each other component."""
    began_s, _ = await long_batches(9, target_s=0.05, seconds=1.5)
    assert 0.25 < began_s <= 0.25 + 2 * SHORT_S


@in_virtual_time
async def test_aged_work_has_a_twentieth_of_the_time() -> None:
    _, part = await long_batches(39, target_s=0.05, seconds=10.0)
    assert part >= 0.05 - LONG_S / 10.0


@in_virtual_time
async def test_without_a_target_long_work_waits_for_its_part_of_the_device() -> None:
    began_s, _ = await long_batches(9, target_s=0.0, seconds=1.5)
    assert began_s > 0.8
    _, part = await long_batches(39, target_s=0.0, seconds=10.0)
    assert part < 0.04
