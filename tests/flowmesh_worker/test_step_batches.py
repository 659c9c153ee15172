"""Component hosts run calls that iterate step by step: who takes part, and what becomes of states.

In virtual time, with the shipped queues and the real table of states.
"""

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest
from tests.flowmesh_worker.step_hosts import (
    NAME,
    OTHER,
    PlayedProcess,
    call_of,
    draw_steps,
    host_of,
    total_of,
)
from tests.virtual_time import in_virtual_time

from flowmesh_core.stages.stage_timing import StageTiming
from flowmesh_worker.engines.code.chain_results import ChainResult, LateError, QueueFullError
from flowmesh_worker.engines.code.component_batches import ComponentBatches
from flowmesh_worker.engines.code.component_frames import CallResult, ResultKind
from flowmesh_worker.engines.code.iterating_code import StepResults

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")
STEP_S = 0.01


def announce(seed: int) -> random.Random:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    return random.Random(seed)


def flat(_: int) -> float:
    """A step that takes as long whatever its size."""
    return STEP_S


def value_of(found: ChainResult) -> Any:
    return json.loads(found.result.body) if found.result.body else found.result.kind


async def measured(host: ComponentBatches, process: PlayedProcess) -> None:
    """Has the host measure steps of all sizes."""
    for size in range(1, process.batch_max + 1):
        await asyncio.gather(*(host.call(call_of(f"m{size}.{n}", 2)) for n in range(size)))
    process.log.clear()


# -- who takes part --------------------------------------------------------------------------------


@in_virtual_time
async def test_a_call_joins_at_the_next_step_and_leaves_with_its_last() -> None:
    process = PlayedProcess({NAME: flat})
    host = host_of(process)
    await measured(host, process)
    long = host.call(call_of("long", 10))
    await asyncio.sleep(2.5 * STEP_S)
    short = host.call(call_of("short", 3))
    assert value_of(await short) == total_of(3)
    assert value_of(await long) == total_of(10)
    together = [("long",)] * 3 + [("long", "short")] * 3 + [("long",)] * 4
    assert [ran.members for ran in process.log] == together
    await host.close()


@in_virtual_time
async def test_an_idle_host_begins_at_once_and_a_host_with_work_never_pauses() -> None:
    process = PlayedProcess({NAME: flat})
    host, loop = host_of(process), asyncio.get_running_loop()
    for n in range(3):
        await asyncio.sleep(1.0)
        asked_s = loop.time()
        await host.call(call_of(f"r{n}", 20))
        assert loop.time() - asked_s == pytest.approx(20 * STEP_S)
    await host.close()


@in_virtual_time
async def test_the_earliest_deadline_takes_the_next_step_and_others_keep_their_states() -> None:
    process = PlayedProcess({NAME: flat}, batch_max=1)
    host = host_of(process)
    late = host.call(call_of("late", 10, slo_ms=10_000))
    await asyncio.sleep(2.5 * STEP_S)
    early = host.call(call_of("early", 4, slo_ms=500))
    assert (value_of(await early), value_of(await late)) == (total_of(4), total_of(10))
    order = [ran.members[0] for ran in process.log]
    assert order == ["late"] * 3 + ["early"] * 4 + ["late"] * 7
    await host.close()


@in_virtual_time
async def test_a_call_whose_steps_cannot_be_in_time_is_late_where_its_component_says_so() -> None:
    """Of 20 steps of 10 ms none is in time within 150 ms, which one step alone does not show."""
    for function, taken in (("Counted", 1), ("Iterating", 15)):
        process = PlayedProcess({NAME: flat}, function, batch_max=2)
        host = host_of(process, "refuse")
        await measured(host, process)
        with pytest.raises(LateError):
            await host.call(call_of("r", 20, slo_ms=151))
        assert len(process.log) == taken
        assert not process.began
        await host.close()


@in_virtual_time
async def test_a_component_that_a_request_visits_again_leaves_time_for_those_steps() -> None:
    process = PlayedProcess({NAME: flat}, "Counted", batch_max=2)
    host = host_of(process, "refuse")
    await measured(host, process)  # two steps a call
    for name, slo_ms, is_late in (("fits", 91, False), ("late", 79, True)):
        call = call_of(name, 4, slo_ms=slo_ms, timing=StageTiming(visits=2, rest_s=0.03))
        (found,) = await asyncio.gather(host.call(call), return_exceptions=True)
        assert isinstance(found, LateError) == is_late
    await host.close()


@in_virtual_time
async def test_no_step_takes_longer_than_its_part_of_the_target() -> None:
    """Calls of 10 steps have 500 ms: 50 a step, which 20 members take."""
    process = PlayedProcess({NAME: lambda size: 0.01 + 0.002 * size}, batch_max=32)
    host = host_of(process)
    timing = StageTiming(0.5)
    for n in range(12):
        calls = (host.call(call_of(f"r{n}.{m}", 10, timing=timing)) for m in range(60))
        await asyncio.gather(*calls)
    assert max(process.sizes()[-50:]) in (20, 21)
    assert Counter(process.sizes()).most_common(1)[0][0] == 20
    await host.close()


@in_virtual_time
async def test_a_host_takes_three_batches_of_calls() -> None:
    process = PlayedProcess({NAME: flat}, batch_max=4)
    host = host_of(process)
    calls = [host.call(call_of(f"r{n}", 5)) for n in range(13)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(f) for f in found].count(QueueFullError) == 1
    await host.close()


@pytest.mark.parametrize("seed", [1, FRESH])
@in_virtual_time
async def test_the_other_component_of_a_process_has_its_half_of_the_time(seed: int) -> None:
    rng = announce(seed)
    process = PlayedProcess({NAME: flat, OTHER: lambda _: 0.03})
    host, loop = host_of(process), asyncio.get_running_loop()

    async def always(component: str, prefix: str) -> None:
        number = 0
        while loop.time() < 10.0:
            number += 1
            steps = draw_steps(rng) if component == NAME else 1
            await host.call(call_of(f"{prefix}{number}", steps, component=component))

    await asyncio.gather(*(always(NAME, f"{n}.") for n in range(3)), always(OTHER, "other"))
    took = Counter[str]()
    for ran in process.log:
        took[ran.component] += ran.ended_s - ran.began_s
    assert 0.45 < took[OTHER] / sum(took.values()) < 0.55
    await host.close()


# -- ends ------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_cancelled_call_leaves_at_the_next_step_and_its_state_is_dropped() -> None:
    process = PlayedProcess({NAME: flat})
    host = host_of(process)
    gone, stays = host.call(call_of("gone", 100)), host.call(call_of("stays", 20))
    await asyncio.sleep(5.5 * STEP_S)
    gone.cancel()
    await asyncio.sleep(STEP_S)
    assert list(process.began) == ["stays"]
    await stays
    assert [ran.members for ran in process.log[6:]] == [("stays",)] * len(process.log[6:])
    await host.close()


@in_virtual_time
async def test_a_call_that_never_ends_is_ended_at_its_timeout() -> None:
    process = PlayedProcess({NAME: flat})
    host = host_of(process)
    with pytest.raises(LateError):
        await host.call(call_of("endless", -1, budget_ms=1000))
    assert asyncio.get_running_loop().time() == pytest.approx(1.0, abs=2 * STEP_S)
    assert not process.code._iterating[NAME].states
    assert not host._components[NAME].queue
    await host.close()


@in_virtual_time
async def test_a_call_that_raises_fails_alone_wherever_it_does() -> None:
    process = PlayedProcess({NAME: flat})
    host = host_of(process)
    await measured(host, process)
    bad = {3: "start", 5: "step", 7: "finish"}
    more: list[dict[str, Any]] = [{"raises": bad[n]} if n in bad else {} for n in range(8)]
    calls = (host.call(call_of(f"r{n}", n + 2, **one)) for n, one in enumerate(more))
    found = await asyncio.gather(*calls)
    for n, one in enumerate(found):
        assert value_of(one) == (ResultKind.RAISED if n in bad else total_of(n + 2))
        if n in bad:
            assert f"ValueError: {bad[n]}" in one.result.error
    began = Counter(ran.members for ran in process.log if len(ran.members) > 1)
    assert sum(began.values()) == 1, "after one step together each of the rest runs alone"
    assert not process.code._iterating[NAME].states
    await host.close()


@in_virtual_time
async def test_a_call_that_ends_the_process_fails_alone_and_paused_ones_restart() -> None:
    process = PlayedProcess({NAME: flat}, batch_max=2, crashes=lambda names: "poison" in names)
    host = host_of(process)
    paused = host.call(call_of("paused", 30, slo_ms=100_000))
    await asyncio.sleep(3.5 * STEP_S)
    names = ("a", "poison")
    found = await asyncio.gather(*(host.call(call_of(n, 4, slo_ms=50_000)) for n in names))
    assert list(map(value_of, found)) == [total_of(4), ResultKind.RAISED]
    assert value_of(await paused) == total_of(30)
    assert process.restarts == 2, "with the other, and alone"
    await host.close()


@in_virtual_time
async def test_a_step_that_hangs_is_ended_at_twenty_times_its_time_or_five_seconds() -> None:
    slow = {"is": False}
    process = PlayedProcess({NAME: lambda _: 1e6 if slow["is"] else STEP_S})
    host, loop = host_of(process), asyncio.get_running_loop()
    await measured(host, process)
    call = host.call(call_of("hangs", 5))
    await asyncio.sleep(2.5 * STEP_S)
    slow["is"], began_s = True, loop.time()
    assert value_of(await call) is ResultKind.RAISED
    assert loop.time() - began_s == pytest.approx(5.0, abs=3 * STEP_S)
    await host.close()


@in_virtual_time
async def test_a_call_of_many_steps_may_take_longer_than_any_limit_of_a_step() -> None:
    process = PlayedProcess({NAME: flat})
    host = host_of(process)
    await measured(host, process)
    assert value_of(await host.call(call_of("long", 5_000))) == total_of(5_000)
    await host.close()


@in_virtual_time
async def test_a_process_that_lies_about_steps_and_times_delays_only_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = PlayedProcess({NAME: flat, OTHER: flat})
    host = host_of(process)

    async def lies(*given: Any, **_: Any) -> StepResults:
        await asyncio.sleep(STEP_S)
        kinds = (ResultKind.UNFINISHED, ResultKind.STATE_LOST, ResultKind.RESTART)
        results = [CallResult(kinds[n % 3], remaining=1 << 62) for n in range(len(given[1]))]
        return StepResults(results, start_s=float("nan"), finish_s=-1.0)

    monkeypatch.setattr(process, "step", lies)
    calls = [host.call(call_of(f"r{n}", 5, slo_ms=500, budget_ms=1000)) for n in range(6)]
    other = host.call(call_of("other", 1, component=OTHER))
    assert value_of(await other) == 0
    for found in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(found, LateError) or found.result.kind is ResultKind.RAISED
    assert asyncio.get_running_loop().time() < 1.1
    assert not host._components[NAME].queue
    assert all(0 < s < 1 for s in host._components[NAME].profile.seconds)
    await host.close()


# -- what is measured ------------------------------------------------------------------------------


@in_virtual_time
async def test_times_and_profile_are_of_whole_calls() -> None:
    process = PlayedProcess({NAME: lambda size: 0.008 + 0.002 * size})
    host = host_of(process)
    (profile,) = host.profiles()
    assert (profile.sizes, profile.call_lengths) == ((), ()), "no call has ended"
    first = host.call(call_of("first", 10))
    await asyncio.sleep(0.035)
    second = host.call(call_of("second", 10))
    (queue_s, took_s) = (await first).times[0]
    assert (queue_s, took_s) == (pytest.approx(0.0), pytest.approx(4 * 0.01 + 6 * 0.012))
    (queue_s, took_s) = (await second).times[0]
    assert (queue_s, took_s) == (pytest.approx(0.005), pytest.approx(6 * 0.012 + 4 * 0.01))
    (profile,) = host.profiles()
    times = profile.times
    assert (times.calls, times.batches, times.batched) == (2, 14, 20)
    assert times.compute_s == pytest.approx(2 * 0.112)
    assert times.queue_s == pytest.approx(0.005)
    assert profile.sizes == (1, 2)
    assert profile.seconds == pytest.approx((0.1, 0.12), rel=0.01)
    assert profile.call_lengths == (1.0,) * 16
    await host.close()


@in_virtual_time
async def test_a_profile_has_at_most_as_many_sizes_as_the_control_plane_takes() -> None:
    process = PlayedProcess({NAME: flat}, batch_max=200)
    host = host_of(process)
    for size in range(1, 201):
        host._components[NAME].record(size, STEP_S)
    await host.call(call_of("r", 2))
    (profile,) = host.profiles()
    assert (len(profile.sizes) <= 64, profile.sizes[0]) == (True, 1)
    await host.close()


# -- N3: states ------------------------------------------------------------------------------------

REQUESTS = 10_000


class Ledger:
    """Requests and states of a run, counted outside the code that is tested."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.live: dict[str, asyncio.Future[ChainResult]] = {}
        self.checks = 0
        self.ends = Counter[str]()
        self.process = PlayedProcess(
            {NAME: lambda size: 0.004 + 0.0005 * size},
            batch_max=16,
            crashes=lambda _: rng.random() < 0.002,
            check=self.check,
        )

    def check(self) -> None:
        """The states that exist are those of the requests that have begun and are wanted."""
        self.checks += 1
        assert set(self.process.began) <= self.live.keys()
        assert len(self.process.code._iterating[NAME].states) == len(self.process.began)


async def ask(ledger: Ledger, host: ComponentBatches, number: int) -> None:
    rng, request = ledger.rng, f"r{number}"
    kinds = (None, "start", "step", "finish")
    steps, raises = rng.randint(1, 10), rng.choices(kinds, (977, 10, 3, 10))
    more = {"raises": raises[0]} if raises[0] else {}
    future = ledger.live[request] = host.call(call_of(request, steps, slo_ms=800, **more))
    # After the host's own: one that is cancelled in the turn in which a step begins takes part.
    future.add_done_callback(lambda _: ledger.live.pop(request))
    if rng.random() < 0.1:
        asyncio.get_running_loop().call_later(rng.uniform(0, 0.1), future.cancel)
    (found,) = await asyncio.gather(future, return_exceptions=True)
    if isinstance(found, ChainResult):
        assert value_of(found) == total_of(steps) or found.result.kind is ResultKind.RAISED
        assert not (raises[0] and found.result.kind is ResultKind.OK)
        ledger.ends[found.result.kind] += 1
    else:
        ledger.ends[type(found).__name__] += 1


@pytest.mark.parametrize("seed", [1, FRESH])
@in_virtual_time
async def test_states_are_those_of_live_requests_at_every_step(seed: int) -> None:
    rng = announce(seed)
    ledger = Ledger(rng)
    host = host_of(ledger.process)
    asking = []
    for number in range(REQUESTS):
        asking.append(asyncio.ensure_future(ask(ledger, host, number)))
        await asyncio.sleep(rng.expovariate(100.0))
    await asyncio.gather(*asking)
    assert ledger.checks > REQUESTS / 2
    assert ledger.process.restarts > 5
    assert ledger.ends[ResultKind.OK] > REQUESTS / 2
    assert min(ledger.ends["CancelledError"], ledger.ends[ResultKind.RAISED]) > 100
    assert not ledger.process.began
    assert not ledger.process.code._iterating[NAME].states
    assert not host._components[NAME].queue
    await host.close()
