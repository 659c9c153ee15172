"""Logs of ended runs: the last lines of each step, bounded, in one object a run."""

from tests.flowmesh_core.machine.world import World, after, plan, step

from flowmesh_control.records.keys import logs_key
from flowmesh_control.records.run_logs import RUN_BYTES, STEP_BYTES, STEP_LINES, RunLogArchive
from flowmesh_control.workers.log_buffer import LogBuffer
from flowmesh_core.machine.model import Run
from flowmesh_core.protocol.messages import LogLine, Sync
from flowmesh_store.store import Store


def running(*paths: str) -> Run:
    """A run whose steps have actions, each with an attempt."""
    world = World()
    world.join("w1")
    uid = world.submit(plan(*(step(path, v=path) for path in paths)))
    world.place()
    return world.machine.state.runs[uid]


def prints(book: LogBuffer, run: Run, path: str, *texts: str, from_s: float = 0.0) -> None:
    key = run.steps[path].parts[0].key
    assert key is not None
    attempt = f"{key.scope}/{key.action_id}/1-1"
    lines = (LogLine(attempt, from_s + n, text) for n, text in enumerate(texts))
    book.add(Sync(1, logs=tuple(lines)))


async def test_step_logs_are_read_after_the_end_by_step_and_in_order_of_time(
    store: Store,
) -> None:
    book, run = LogBuffer(), running("a", "b", "quiet")
    prints(book, run, "a", "one", "three")
    prints(book, run, "b", "two", from_s=0.5)
    await RunLogArchive(store.records, book).keep(run)
    again = RunLogArchive(store.records, LogBuffer())
    assert [line.text for line in await again.of(run.uid, None)] == ["one", "two", "three"]
    assert [(line.time_s, line.text) for line in await again.of(run.uid, "b")] == [(0.5, "two")]
    assert await again.of(run.uid, "quiet") == []


async def test_log_lines_of_another_run_are_not_shown_for_a_hit_on_its_result(
    store: Store,
) -> None:
    world = World()
    world.join("w1")
    uid = world.submit(plan(step("a")))
    first = world.machine.state.runs[uid]
    world.place()
    book = LogBuffer()
    prints(book, first, "a", "secret")
    kept = RunLogArchive(store.records, book)
    assert [line.text for line in kept.live(first, first.steps.values())] == ["secret"]
    world.run()
    second = world.submit(plan(step("a"), step("b", *after("a"))))
    hit = world.machine.state.runs[second]
    assert hit.steps["a"].hits == 1
    assert kept.live(hit, hit.steps.values()) == []


async def test_storing_logs_twice_is_harmless_and_the_later_record_counts(store: Store) -> None:
    book, run = LogBuffer(), running("a")
    kept = RunLogArchive(store.records, book)
    prints(book, run, "a", "one")
    await kept.keep(run)
    await kept.keep(run)
    prints(book, run, "a", "two", from_s=5.0)
    await kept.keep(run)
    assert [line.text for line in await kept.of(run.uid, "a")] == ["one", "two"]


async def test_a_run_that_printed_nothing_writes_nothing(store: Store) -> None:
    run = running("a")
    await RunLogArchive(store.records, LogBuffer()).keep(run)
    assert await store.records.read(logs_key(run.uid)) is None


async def test_the_last_lines_and_bytes_of_a_step_are_retained(store: Store) -> None:
    book, run = LogBuffer(lines=1000), running("many", "long", "one")
    prints(book, run, "many", *(f"line {n}" for n in range(1000)))
    prints(book, run, "long", *("é" * 10_000 + str(n) for n in range(50)))
    prints(book, run, "one", "é" * STEP_BYTES + "end")
    kept = RunLogArchive(store.records, book)
    await kept.keep(run)
    many = [line.text for line in await kept.of(run.uid, "many")]
    assert (len(many), many[-1]) == (STEP_LINES, "line 999")
    long = [line.text for line in await kept.of(run.uid, "long")]
    assert [text[-2:] for text in long] == ["47", "48", "49"]
    (one,) = [line.text for line in await kept.of(run.uid, "one")]
    assert one.endswith("éend")
    assert STEP_BYTES - 4 <= len(one.encode()) <= STEP_BYTES


async def test_a_run_with_many_printing_steps_retains_less_of_each(store: Store) -> None:
    paths = [f"s{n}" for n in range(400)]
    book, run = LogBuffer(), running(*paths)
    for path in paths:
        prints(book, run, path, *("x" * 1000 for _ in range(64)))
    await RunLogArchive(store.records, book).keep(run)
    record = await store.records.read(logs_key(run.uid))
    assert record is not None
    assert RUN_BYTES // 2 < len(record.data) < 2 * RUN_BYTES
