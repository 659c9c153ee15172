"""Batches of Python components: results by position, by reference, and failures alone."""

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from tests.flowmesh_worker.batch_runner import BatchRunner
from tests.virtual_time import in_virtual_time

from flowmesh_core.protocol.serving import ComponentCall, StoredInput
from flowmesh_worker.engines.code import trusted_code
from flowmesh_worker.engines.code.chain_results import ChainResult, LateError, QueueFullError
from flowmesh_worker.engines.code.component_batches import ComponentBatches
from flowmesh_worker.engines.code.component_code import ComponentCode, WrongResultsError
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    CallResult,
    LoadedCode,
    ResultKind,
)
from flowmesh_worker.engines.code.trusted_code import TrustedCode
from flowmesh_worker.ipc.passed_values import StageBytes
from flowmesh_worker.ipc.spare_files import SpareFiles

CODE = """
import threading, time

made = []

class Counter:
    def __init__(self):
        made.append(1)

    def compute(self, batch):
        return [sum(made)] * len(batch)

def make(batch):
    return [{"id": 0, "name": call["name"]} for call in batch]

def address(batch):
    return [id(call["value"]) for call in batch]

def remember(batch):
    for call in batch:
        call["value"]["id"] = id(call["value"])
    return [call["value"]["id"] for call in batch]

def picky(batch):
    if any(call["n"] == 3 for call in batch):
        raise ValueError("three")
    return [call["n"] for call in batch]

def short(batch):
    return batch[1:]

def thread(batch):
    return [threading.get_ident()] * len(batch)

def nap(batch):
    time.sleep(0.001)
    return thread(batch)

def slow(batch):
    time.sleep(0.05)
    return [len(batch)] * len(batch)
"""


def loaded(*functions: str, batch_max: int = 8) -> tuple[LoadedCode, ...]:
    return tuple(LoadedCode(name, CODE, name, batch_max) for name in functions)


def call(
    *, store_as: str = "", stored: dict[str, StoredInput] | None = None, **body: Any
) -> BatchCall:
    return BatchCall(msgspec.json.encode(body), stored or {}, store_as, True)


def values(results: list[CallResult]) -> list[Any]:
    return [msgspec.json.decode(r.body) if r.body else r.kind for r in results]


def test_a_stored_result_is_the_same_object_for_the_next_component() -> None:
    code = ComponentCode(
        (*loaded("make"), LoadedCode("a", CODE, "remember", 8), *loaded("address")), SpareFiles()
    )
    code.run("make", [call(name="x", store_as="k")])
    whole = {"value": StoredInput("k")}
    (first,) = values(code.run("a", [call(stored=whole)]))
    assert values(code.run("address", [call(stored=whole)])) == [first]
    name = {"value": StoredInput("k", ("name",))}
    missing = {"value": StoredInput("k", ("nothing",))}
    kinds = [r.kind for r in code.run("address", [call(stored=name), call(stored=missing)])]
    assert kinds == [ResultKind.OK, ResultKind.BAD_INPUT]
    code.forget(["k"])
    assert values(code.run("address", [call(stored=whole)])) == [ResultKind.LOST]


def test_a_member_that_raises_fails_alone() -> None:
    code = ComponentCode(loaded("picky"), SpareFiles())
    results = code.run("picky", [call(n=n) for n in range(5)])
    assert values(results) == [0, 1, 2, ResultKind.RAISED, 4]
    assert "ValueError: three" in results[3].error
    assert "raise ValueError" in results[3].error


def test_another_number_of_results_is_an_error_of_each_call() -> None:
    results = ComponentCode(loaded("short"), SpareFiles()).run("short", [call(n=1), call(n=2)])
    assert [r.kind for r in results] == [ResultKind.RAISED] * 2
    assert "returned 0 for 1 calls" in results[0].error


def test_a_class_is_made_once_and_a_missing_function_is_named() -> None:
    code = ComponentCode((LoadedCode("c", CODE, "Counter", 8),), SpareFiles())
    assert values(code.run("c", [call(), call()])) == [1, 1]
    assert values(code.run("c", [call()])) == [1]
    with pytest.raises(WrongResultsError, match=r"no function other\(\)"):
        ComponentCode((LoadedCode("c", CODE, "other", 8),), SpareFiles())


async def test_a_batch_leaves_the_loop_unless_the_last_ones_took_less_than_passing_it_on() -> None:
    trusted = TrustedCode(loaded("thread", "slow"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "perf_counter", lambda: 0.0)  # batches take no time at all
        (first,) = await trusted.run("thread", [call()], 1.0)
        while trusted._busy:  # noqa: ASYNC110 - it prepares for the next, and has no event
            await asyncio.sleep(0.001)
        second, third = [(await trusted.run("thread", [call()], 1.0))[0] for _ in range(2)]
    own = msgspec.json.encode(threading.get_ident())
    assert (first.body != own, second.body, third.body) == (True, own, own)
    for _ in range(2):
        ticks = 0
        slow = asyncio.ensure_future(trusted.run("slow", [call(store_as="k")], 1.0))
        while not slow.done():
            await asyncio.sleep(0.001)
            ticks += 1
        assert ticks > 3  # the loop went on
    running = asyncio.ensure_future(trusted.run("slow", [call(store_as="late")], 1.0))
    await asyncio.sleep(0)
    trusted.forget(("late",))
    await running
    trusted.forget(("k",))
    await trusted.run("slow", [call()], 1.0)  # after what was asked before
    assert trusted.code._stored == {}
    await trusted.close()


async def test_a_batch_that_waits_leaves_the_loop_and_one_that_is_preempted_does_not() -> None:
    trusted = TrustedCode(loaded("nap", "thread"))
    own = msgspec.json.encode(threading.get_ident())
    naps = [(await trusted.run("nap", [call()], 1.0))[0].body for _ in range(3)]
    assert own not in naps
    trusted._slowest_s["thread"] = 0.0
    running = trusted.code.run

    def preempted(*arguments: Any) -> list[CallResult]:
        began_s = time.perf_counter()
        while time.perf_counter() - began_s < 0.001:
            pass  # others have the processor: its clock does not go on
        return running(*arguments)

    trusted.code.run = preempted  # type: ignore[method-assign]
    stands_still = time.thread_time()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "thread_time", lambda: stands_still)
        patched.setattr(trusted_code, "_waits", lambda: 0)
        found = [(await trusted.run("thread", [call()], 1.0))[0].body for _ in range(2)]
    assert found == [own, own]
    await trusted.close()


async def test_a_chain_says_which_of_its_calls_ended_it_and_leaves_no_queue() -> None:
    code = loaded("make", "picky", "slow", batch_max=1)
    batches = ComponentBatches(code, TrustedCode(code), "demote", lambda: None)

    def chain(key: str, name: str, body: bytes) -> ComponentCall:
        more = {"budget_ms": 9000, "slo_ms": 0}
        last = ComponentCall(f"{key}.2", name, body, {}, "", wants_body=True, **more)
        made = msgspec.json.encode({"name": key})
        return ComponentCall(key, "make", made, {}, key, wants_body=False, then=(last,), **more)

    raised = await batches.call(chain("raises", "picky", b'{"n": 3}'))
    assert (raised.step, raised.result.kind) == (1, ResultKind.RAISED)
    slow = [batches.call(chain(f"slow{n}", "slow", b"{}")) for n in range(2)]
    queue = batches._components["slow"].queue
    while not queue:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)
    with pytest.raises(KeyError):
        await batches.call(chain("unknown", "nothing", b"{}"))
    for one in slow:
        one.cancel()
    await asyncio.sleep(0)
    assert not queue
    await batches.close()


async def sizes(batches: ComponentBatches, count: int, **more: int) -> list[Any]:
    given = {"budget_ms": 60_000, "slo_ms": 0, **more}
    calls = (
        ComponentCall(f"c{i}", "slow", b"{}", {}, "", wants_body=True, **given)
        for i in range(count)
    )
    results = await asyncio.gather(*map(batches.call, calls), return_exceptions=True)
    return [
        type(r) if isinstance(r, BaseException) else msgspec.json.decode(r.result.body)
        for r in results
    ]


async def test_batches_grow_while_that_is_faster_and_stay_below_the_cap() -> None:
    code = loaded("slow", batch_max=4)
    batches = ComponentBatches(code, TrustedCode(code), "demote", lambda: None)
    found = await sizes(batches, 7)
    assert sorted(found) == [1, 2, 2, 4, 4, 4, 4]
    assert found[:2] == [2, 2]
    assert QueueFullError in await sizes(batches, 20)
    (profile,) = batches.profiles()
    assert profile.sizes == (1, 2, 4)
    assert profile.cap == 4
    await batches.close()


async def test_the_times_of_batches_are_summed_by_component() -> None:
    code = loaded("slow", batch_max=4)
    batches = ComponentBatches(code, TrustedCode(code), "demote", lambda: None)
    began_s = asyncio.get_running_loop().time()
    await sizes(batches, 7)  # in batches of 2, 1 and 4
    took_s = asyncio.get_running_loop().time() - began_s
    times = batches.profiles()[0].times
    assert (times.calls, times.batches, times.batched) == (7, 3, 7)
    busy_s = batches._busy_s
    assert busy_s < times.compute_s < 4 * busy_s
    assert 0 < times.queue_s + times.compute_s < 7 * took_s
    await sizes(batches, 1)
    since = batches.profiles()[0].times.since(times)
    assert (since.calls, since.batches, since.batched) == (1, 1, 1)
    await batches.close()


async def test_late_calls_are_refused_or_served_behind_others() -> None:
    code = loaded("slow")
    refusing = ComponentBatches(code, TrustedCode(code), "refuse", lambda: None)
    await sizes(refusing, 1)  # measures it
    assert LateError in await sizes(refusing, 4, slo_ms=80)
    await refusing.close()
    demoting = ComponentBatches(code, TrustedCode(code), "demote", lambda: None)
    await sizes(demoting, 1)
    assert LateError not in await sizes(demoting, 4, slo_ms=80)
    await demoting.close()


class OneAtATime(BatchRunner):
    """Runs a batch when the test says so."""

    def __init__(self, code: ComponentCode) -> None:
        self.code = code
        self.began: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]],
    ) -> list[CallResult]:
        del within_s, passed
        may_run = asyncio.get_running_loop().create_future()
        self.began.put_nowait(may_run)
        await may_run
        return self.code.run(component, calls)

    def forget(self, keys: tuple[str, ...]) -> None:
        self.code.forget(keys)


async def test_a_call_that_is_cancelled_as_its_batch_forms_leaves_no_result() -> None:
    """Its hub sends the abort and the key in one frame, in the turn in which a batch has ended."""
    code = loaded("make")
    runner = OneAtATime(ComponentCode(code, SpareFiles()))
    batches = ComponentBatches(code, runner, "demote", lambda: None)

    def begin(key: str) -> asyncio.Future[ChainResult]:
        body = msgspec.json.encode({"name": key})
        made = ComponentCall(key, "make", body, {}, key, wants_body=True, budget_ms=9000, slo_ms=0)
        return batches.call(made)

    first = begin("first")
    may_run = await runner.began.get()
    second = begin("second")
    await asyncio.sleep(0)
    may_run.set_result(None)
    await asyncio.sleep(0)
    second.cancel()
    runner.forget(("second",))
    (await runner.began.get()).set_result(None)
    await asyncio.gather(first, second, return_exceptions=True)
    while batches._running is not None:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)
    await batches.close()
    assert first.result().result.kind is ResultKind.OK
    assert list(runner.code._stored) == ["first"]


class TimedRunner(BatchRunner):
    """Runs a batch in as long as the test says."""

    def __init__(self, *took_s: float) -> None:
        self.took_s = list(took_s)

    async def run(self, _: str, calls: Sequence[Any], *__: Any) -> list[CallResult]:
        await asyncio.sleep(self.took_s.pop(0) if self.took_s else 0.005)
        return [CallResult(ResultKind.OK, b"{}") for _ in calls]


@in_virtual_time
@pytest.mark.parametrize("took_s", [(1.0,), (0.005, 60.0), (0.005, 1.0, 1.0, 1.0)])
async def test_a_service_that_refuses_late_calls_goes_on_after_slow_batches(
    took_s: tuple[float, ...],
) -> None:
    """One tenant's slow call would have all calls of all refused for ever."""
    batches = ComponentBatches(loaded("slow"), TimedRunner(*took_s), "refuse", lambda: None)
    late = 0
    for number in range(200):
        given = {"budget_ms": 600_000, "slo_ms": 100}
        call = ComponentCall(f"c{number}", "slow", b"{}", {}, "", wants_body=True, **given)
        try:
            await batches.call(call)
        except LateError:
            late += 1
    assert late == 0
    (profile,) = batches.profiles()
    assert profile.seconds[0] < 0.01
    await batches.close()
