"""The loop and the work outside, on real stores; the machine is a list of answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.blob_views import SCOPE, blobs_of
from tests.flowmesh_control.waiting import until
from tests.flowmesh_store.backends import rewrite_in, rewrite_memory

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_control.loop.command_executor import CommandExecutor
from flowmesh_control.loop.current_event import CurrentEventMarker
from flowmesh_control.loop.event_loop import DECIDE_GAP_S, TURN_S, UNDERLOADED_SLICE_S, EventLoop
from flowmesh_control.loop.task_pool import TaskPool
from flowmesh_core.dataset import ChunkRef, Manifest, Schema, encode_manifest
from flowmesh_core.errors import StoreFullError, StoreUnavailableError
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.fleet.snapshot import Decision, Rejection, Snapshot
from flowmesh_core.identity import digest_bytes
from flowmesh_core.machine.commands import (
    Assign,
    CheckBlobs,
    Command,
    EvaluateCondition,
    FinalizeRun,
    LookUp,
    Publish,
    PutBlob,
    PutManifest,
)
from flowmesh_core.machine.events import (
    ActionKey,
    BlobsChecked,
    CancelRequested,
    ControlStalled,
    Event,
    LookedUp,
    PlacementDecided,
    PublishDelayed,
    Published,
    PublishFailed,
    RunFinalized,
    TimeAdvanced,
)
from flowmesh_core.protocol.messages import Assignment, AttemptEnd, PrewarmSpec
from flowmesh_core.protocol.results import ActionResult, Artifact, Provenance
from flowmesh_core.spec.secrets import SecretValue
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.memory import MemoryContent
from flowmesh_store.scoped_blobs import ScopedBlobs
from flowmesh_store.store import Store

D = Digest("a" * 64)
KEY = ActionKey("ns-a", D)


@dataclass
class Answers:
    """Answers a named event with the commands a test has put there, and records all events."""

    commands: dict[str, list[Command]] = field(default_factory=dict)
    received: list[Event] = field(default_factory=list)
    wants_decision: bool = False

    def apply(self, event: Event, now_s: float) -> list[Command]:
        if not isinstance(event, TimeAdvanced):
            self.received.append(event)
        uid = event.uid if isinstance(event, CancelRequested) else ""
        if uid == "boom":
            raise RuntimeError("boom")
        return self.commands.get(uid, []) if uid else []

    def snapshot(self, now_s: float) -> Snapshot:
        self.wants_decision = False
        return Snapshot((), ReadyIndex(), {}, {}, now_s)

    def of(self, kind: type) -> list[Any]:
        return [e for e in self.received if isinstance(e, kind)]


@dataclass
class Workers:
    assigned: list[tuple[str, Assignment]] = field(default_factory=list)
    reports: list[AttemptEnd] = field(default_factory=list)
    secrets: list[tuple[Any, ...]] = field(default_factory=list)

    def assign(
        self, worker: str, assignment: Assignment, generation: int, read_scopes: tuple[str, ...]
    ) -> None:
        self.assigned.append((worker, assignment))

    def cancel(self, worker: str, attempt_id: str) -> None: ...
    def prewarm(self, worker: str, openings: tuple[PrewarmSpec, ...]) -> None: ...

    def acknowledge(self, worker: str, attempt_id: str) -> None: ...
    def confirm_attempts(self, worker: str, attempts: tuple[str, ...]) -> None: ...
    def flush(self) -> None: ...
    def drain(self, worker: str) -> bool: ...

    def report(self, worker: str, end: AttemptEnd) -> None:
        self.reports.append(end)


@dataclass
class Askers:
    """Knows whose work a look-up is by its scope, and what nobody waits for."""

    left: set[ActionKey] = field(default_factory=set)
    given_up: list[ActionKey] = field(default_factory=list)
    queued: Callable[[str], object] = str

    def namespaces(self, command: Command) -> Sequence[str]:
        found = command.key.scope if isinstance(command, LookUp | Publish) else "team-a"
        self.queued(found)
        return (found,)

    def awaits(self, command: LookUp | CheckBlobs | EvaluateCondition | Publish) -> bool:
        if isinstance(command, Publish):
            if command.key in self.left:
                self.given_up.append(command.key)
            return command.key not in self.left
        return not (isinstance(command, LookUp) and command.key in self.left)


@dataclass
class Bench:
    machine: Answers
    loop: EventLoop
    tasks: TaskPool
    cache: ActionCache
    workers: Workers
    store: Store
    failures: list[BaseException]
    finished: list[str]
    askers: Askers
    running: "asyncio.Task[None]"

    async def do(self, *commands: Command) -> None:
        self.machine.commands["now"] = list(commands)
        await self.loop.post_and_wait(CancelRequested("now"))


class NoSecrets:
    async def read(
        self, namespace: str, names: tuple[str, ...], engine: str
    ) -> dict[str, SecretValue]:
        return {n: SecretValue(f"{namespace}/{n}", ("*",)) for n in names}


class Notes:
    def __init__(self) -> None:
        self.finished: list[str] = []

    async def finish(self, uid: str) -> None:
        self.finished.append(uid)


def nothing(*_: object) -> None: ...


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    machine, workers, notes, askers = Answers(), Workers(), Notes(), Askers()
    failures: list[BaseException] = []
    tasks = TaskPool(failed=failures.append, waits=nothing, count=4)
    cache = ActionCache(store.records)
    posts: list[Callable[[Event], None]] = []

    def post(event: Event) -> None:
        posts[0](event)

    outside = CommandExecutor(
        store=store,
        needed=store,
        cache=cache,
        fleet=workers,
        tasks=tasks,
        append=nothing,
        settled=nothing,
        published=nothing,
        finish=notes,
        changed=nothing,
        secrets=NoSecrets(),
        secrets_used=lambda *used: workers.secrets.append(used),
        evaluate=nothing,
        owners=askers,
        post=post,
    )
    loop = EventLoop(
        machine=machine,
        decide=lambda s: Decision((), ()),
        executor=outside,
        marker=CurrentEventMarker.in_memory(epoch=1),
        clock=lambda: 5.0,
    )
    posts.append(loop.post)
    tasks.start()
    running = asyncio.create_task(loop.run())
    yield Bench(
        machine, loop, tasks, cache, workers, store, failures, notes.finished, askers, running
    )
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError, RuntimeError):
        await running
    await tasks.stop()


def result(attempt: str = "t1", generation: int = 1) -> ActionResult:
    return ActionResult(
        action_id=D,
        generation=generation,
        engine="test.noop",
        contract=1,
        implementation=1,
        inputs={},
        outputs={},
        provenance=Provenance(attempt_id=attempt),
    )


async def test_an_unpublished_result_is_a_miss_and_a_published_one_a_hit(bench: Bench) -> None:
    await bench.do(LookUp(KEY, ("ns-a",)))
    await until(lambda: bench.machine.of(LookedUp))
    await bench.do(Publish(KEY, result()))
    await until(lambda: bench.machine.of(Published))
    await bench.do(LookUp(KEY, ("ns-b", "ns-a")))
    await until(lambda: len(bench.machine.of(LookedUp)) == 2)
    miss, hit = bench.machine.of(LookedUp)
    assert miss.result is None
    assert hit.result.provenance.attempt_id == "t1"


async def test_the_second_publication_adopts_the_first(bench: Bench) -> None:
    await bench.do(Publish(KEY, result("t1")))
    await until(lambda: bench.machine.of(Published))
    await bench.do(Publish(KEY, result("t2")))
    await until(lambda: len(bench.machine.of(Published)) == 2)
    first, second = bench.machine.of(Published)
    assert (first.adopted, second.adopted) == (False, True)
    assert second.result.provenance.attempt_id == "t1"


async def test_a_repeated_publication_that_finds_its_own_record_is_not_an_adoption(
    bench: Bench,
) -> None:
    await bench.do(Publish(KEY, result("t1")), Publish(KEY, result("t1")))
    await until(lambda: len(bench.machine.of(Published)) == 2)
    assert [p.adopted for p in bench.machine.of(Published)] == [False, False]


async def test_a_lost_result_is_replaced_once_by_a_higher_generation(bench: Bench) -> None:
    await bench.do(Publish(KEY, result("t1")))
    await until(lambda: bench.machine.of(Published))
    await bench.do(Publish(KEY, result("t2", 2), replace=True))
    await until(lambda: len(bench.machine.of(Published)) == 2)
    await bench.do(Publish(KEY, result("t3", 2), replace=True))
    await until(lambda: len(bench.machine.of(Published)) == 3)
    _, repaired, late = bench.machine.of(Published)
    assert (repaired.adopted, repaired.result.generation) == (False, 2)
    assert (late.adopted, late.result.provenance.attempt_id) == (True, "t2")


async def test_a_permanent_refusal_by_the_store_fails_the_publication(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = msgspec.structs.replace(result(), action_id=Digest("not a digest/"))
    await bench.do(Publish(ActionKey("ns-a", bad.action_id), bad))
    await until(lambda: bench.machine.of(PublishFailed))
    [failed] = bench.machine.of(PublishFailed)
    assert failed.failure.kind == "store"


async def test_a_result_waits_until_the_store_has_space(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = full_until(bench, monkeypatch, calls=3)
    await bench.do(Publish(KEY, result("t1")))
    await until(lambda: bench.machine.of(Published))
    delays = bench.machine.of(PublishDelayed)
    assert len(delays) == len(full) == 2
    assert "no space is left" in delays[0].failure.message
    assert delays[0].failure.remedy == "free some"
    assert not bench.machine.of(PublishFailed)


async def test_an_unstorable_result_that_no_action_waits_for_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = full_until(bench, monkeypatch, calls=10**9)
    await bench.do(Publish(KEY, result("t1")))
    await until(lambda: len(full) == 2)
    bench.askers.left.add(KEY)
    await until(lambda: bench.askers.given_up)
    await bench.do()
    assert bench.tasks.retries == len(bench.machine.of(PublishDelayed)) == len(full) == 2


def full_until(bench: Bench, monkeypatch: pytest.MonkeyPatch, *, calls: int) -> list[str]:
    """Refuses publications for want of space before so many; returns those it has refused."""
    real, refused = bench.cache.publish, list[str]()

    async def publish(scope: str, made: ActionResult, **more: float) -> Any:
        if len(refused) + 1 >= calls:
            return await real(scope, made, **more)
        refused.append(scope)
        raise StoreFullError("no space is left", remedy="free some")

    monkeypatch.setattr(bench.cache, "publish", publish)
    return refused


async def test_a_request_to_an_unavailable_store_is_retried(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = bench.cache.lookup, list[int]()

    async def shaky(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) < 3:
            raise StoreUnavailableError("try later")
        return await real(*args, **kwargs)

    monkeypatch.setattr(bench.cache, "lookup", shaky)
    await bench.do(LookUp(KEY, ("ns-a",)))
    await until(lambda: bench.machine.of(LookedUp))
    assert len(calls) == 3
    assert bench.tasks.retries == 2
    assert bench.failures == []


async def test_a_manifest_is_stored_before_the_run_that_shows_it_ends(bench: Bench) -> None:
    manifest = Manifest(Schema())
    digest = digest_bytes(encode_manifest(manifest))
    await bench.do(PutManifest(digest, manifest, "run-1", SCOPE), FinalizeRun("run-1"))
    await until(lambda: bench.machine.of(RunFinalized))
    assert await blobs_of(bench.store).get(digest) == encode_manifest(manifest)
    assert bench.finished == ["run-1"]


async def test_missing_blobs_are_named(bench: Bench) -> None:
    data = b"here"
    await blobs_of(bench.store).put(digest_bytes(data), data)
    await bench.do(CheckBlobs("run-1", {SCOPE: frozenset({D, digest_bytes(data)})}, (SCOPE,)))
    await until(lambda: bench.machine.of(BlobsChecked))
    assert bench.machine.of(BlobsChecked) == [BlobsChecked("run-1", frozenset({D}))]


async def test_a_blob_of_another_size_is_deleted_and_missing_so_that_it_is_stored_again(
    bench: Bench, tmp_path: Path
) -> None:
    blobs, data = blobs_of(bench.store), b"a chunk of an output"
    whole, cut, gone = (digest_bytes(data + n) for n in (b"1", b"2", b"3"))
    sizes = dict.fromkeys((whole, cut, gone), len(data) + 1)
    for number, digest in ((b"1", whole), (b"2", cut)):
        await blobs.put(digest, data + number)
    in_memory = isinstance(bench.store.sweepable_blobs, MemoryContent)
    rewrite = rewrite_memory(bench.store) if in_memory else rewrite_in(tmp_path / "store")
    rewrite(cut, data[:7])
    await bench.do(CheckBlobs("run-1", {SCOPE: frozenset(sizes)}, (SCOPE,), sizes))
    await until(lambda: bench.machine.of(BlobsChecked))
    assert bench.machine.of(BlobsChecked) == [BlobsChecked("run-1", frozenset({cut, gone}))]
    assert await blobs.missing([whole, cut]) == {cut}


async def test_a_blob_whose_reported_size_is_wrong_is_not_missing(bench: Bench) -> None:
    digest = digest_bytes(b"here")
    await blobs_of(bench.store).put(digest, b"here")
    check = CheckBlobs("run-1", {SCOPE: frozenset({digest})}, (SCOPE,), {digest: 5})
    await bench.do(check)
    await until(lambda: bench.machine.of(BlobsChecked))
    assert bench.machine.of(BlobsChecked) == [BlobsChecked("run-1", frozenset())]
    assert await blobs_of(bench.store).get(digest) == b"here"


def lookups(count: int, scope: str) -> list[Command]:
    keys = (ActionKey(scope, digest_bytes(b"%d" % n)) for n in range(count))
    return [LookUp(key, (scope,)) for key in keys]


async def test_one_look_up_of_a_tenant_waits_for_few_of_the_thousands_of_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = bench.cache.lookup, list[str]()

    async def across_the_network(digest: Digest, scopes: Sequence[str], **kwargs: Any) -> Any:
        asked.append(scopes[0])
        await asyncio.sleep(0)
        return await real(digest, scopes, **kwargs)

    monkeypatch.setattr(bench.cache, "lookup", across_the_network)
    await bench.do(*lookups(4000, "ns-a"))
    await until(lambda: len(asked) > 100)
    before: list[int] = []
    bench.askers.queued = lambda _: before.append(len(asked))
    await bench.do(LookUp(ActionKey("ns-b", D), ("ns-b",)))
    await until(lambda: "ns-b" in asked)
    assert asked.index("ns-b") - before[0] <= 1
    await until(lambda: len(bench.machine.of(LookedUp)) == 4001)


async def test_a_look_up_that_no_run_waits_for_any_more_is_not_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = bench.cache.lookup, list[Digest]()

    async def noted(digest: Digest, *args: Any, **kwargs: Any) -> Any:
        asked.append(digest)
        return await real(digest, *args, **kwargs)

    monkeypatch.setattr(bench.cache, "lookup", noted)
    commands = lookups(500, "ns-a")
    bench.askers.left = {c.key for c in commands[:-1] if isinstance(c, LookUp)}
    await bench.do(*commands)
    await until(lambda: bench.machine.of(LookedUp))
    assert len(asked) == 1
    assert bench.tasks.backlog == 0


async def test_a_store_failure_for_one_tenant_does_not_delay_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bench.cache.lookup

    async def fails_for_a(digest: Digest, scopes: Sequence[str], **kwargs: Any) -> Any:
        if scopes[0] == "ns-a":
            raise StoreUnavailableError("try later", where="actions/ns-a")
        return await real(digest, scopes, **kwargs)

    monkeypatch.setattr(bench.cache, "lookup", fails_for_a)
    await bench.do(*lookups(100, "ns-a"))
    await until(lambda: bench.tasks.retries >= 4)
    await bench.do(*lookups(100, "ns-b"))
    await until(lambda: len(bench.machine.of(LookedUp)) == 100)
    assert {e.key.scope for e in bench.machine.of(LookedUp)} == {"ns-b"}


class FailingPuts:
    """Blobs of which some cannot be put until the store has space again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused: set[Digest] = set()
        put = ScopedBlobs.put

        async def failing(view: ScopedBlobs, digest: Digest, data: Any) -> None:
            if digest in self.refused:
                raise StoreFullError("no space is left", where=f"cas/{digest}", remedy="free it")
            await put(view, digest, data)

        monkeypatch.setattr(ScopedBlobs, "put", failing)


async def test_a_runs_end_waits_for_its_own_blobs_and_not_for_those_of_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, others = (digest_bytes(d) for d in (b"mine", b"another's"))
    puts = FailingPuts(monkeypatch)
    puts.refused.add(others)
    await bench.do(
        PutBlob(others, b"another's", "run-a", SCOPE),
        CheckBlobs("run-a", {}, (SCOPE,)),
        PutBlob(mine, b"mine", "run-b", SCOPE),
        FinalizeRun("run-a"),
        FinalizeRun("run-b"),
    )
    await until(lambda: bench.finished == ["run-b"] and bench.tasks.retries >= 2)
    assert await blobs_of(bench.store).get(mine) == b"mine"
    puts.refused.clear()
    await until(lambda: bench.finished == ["run-b", "run-a"])
    assert await blobs_of(bench.store).get(others) == b"another's"


async def test_a_runs_end_waits_for_a_blob_that_is_stored_for_another_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = digest_bytes(b"shared")
    puts = FailingPuts(monkeypatch)
    puts.refused.add(digest)
    await bench.do(
        PutBlob(digest, b"shared", "run-a", SCOPE),
        CheckBlobs("run-b", {SCOPE: frozenset({digest, D})}, (SCOPE,)),
    )
    await until(lambda: bench.machine.of(BlobsChecked))
    assert bench.machine.of(BlobsChecked) == [BlobsChecked("run-b", frozenset({D}))]
    await bench.do(FinalizeRun("run-b"), FinalizeRun("run-c"))
    await until(lambda: bench.finished == ["run-c"] and bench.tasks.retries >= 2)
    puts.refused.clear()
    await until(lambda: bench.finished == ["run-c", "run-b"])


async def test_secrets_are_read_for_the_attempt_that_names_them(bench: Bench) -> None:
    plain = Assignment("t1", D, D, "code", 1, 1, {}, {}, {})
    await bench.do(Assign("w1", plain, ("key",), "team-a"), Assign("w1", plain))
    await until(lambda: len(bench.workers.assigned) == 2)
    assert sorted(a.secrets.get("key", "") for _, a in bench.workers.assigned) == ["", "team-a/key"]
    assert bench.workers.secrets == [("team-a", "t1", "w1", {"key": ("*",)})]


async def test_the_scheduler_runs_when_the_machine_requests_a_decision(bench: Bench) -> None:
    bench.machine.wants_decision = True
    await bench.do()
    await until(lambda: bench.machine.of(PlacementDecided))
    assert not bench.machine.wants_decision


async def test_an_error_of_the_machine_ends_the_loop_and_is_raised_in_the_caller(
    bench: Bench,
) -> None:
    with pytest.raises(RuntimeError, match="boom"):
        await bench.loop.post_and_wait(CancelRequested("boom"))
    with pytest.raises(RuntimeError, match="boom"):
        await bench.running


async def test_ten_thousand_events_are_applied_in_order(
    bench: Bench,
) -> None:
    uids = [f"u{n}" for n in range(10_000)]
    for uid in uids:
        bench.loop.post(CancelRequested(uid))
    await until(lambda: len(bench.machine.received) == len(uids))
    assert [e.uid for e in bench.machine.of(CancelRequested)] == uids


@dataclass
class Backlog:
    """An executor that has as much to do as a test says."""

    backlog: int = 0

    def execute(self, commands: Sequence[Command]) -> None: ...
    def flush(self) -> None: ...


def test_the_loop_decides_at_once_unless_other_work_is_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("flowmesh_control.loop.event_loop.time.monotonic", lambda: now_s[0])
    machine, executor = Answers(), Backlog()
    loop = EventLoop(
        machine=machine,
        decide=lambda s: Decision((), ()),
        executor=executor,
        marker=CurrentEventMarker.in_memory(epoch=1),
        clock=lambda: 5.0,
    )

    def decided(*, after_s: float) -> bool:
        now_s[0] += after_s
        before = len(machine.of(PlacementDecided))
        machine.wants_decision = True
        loop.run_once()
        return len(machine.of(PlacementDecided)) > before

    assert decided(after_s=0.0)
    assert decided(after_s=0.0001)
    executor.backlog = 1
    assert not decided(after_s=0.0001)
    assert not decided(after_s=DECIDE_GAP_S / 2)
    assert decided(after_s=DECIDE_GAP_S)


def test_after_a_long_decision_events_get_the_same_amount_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("flowmesh_control.loop.event_loop.time.monotonic", lambda: now_s[0])
    machine = Answers()

    def slow(snapshot: Snapshot) -> Decision:
        now_s[0] += 0.03
        return Decision((), ())

    loop = EventLoop(
        machine=machine,
        decide=slow,
        executor=Backlog(),
        marker=CurrentEventMarker.in_memory(epoch=1),
        clock=lambda: 5.0,
    )
    counts = []
    for wait_s in (0.0, 0.02, 0.02):
        now_s[0] += wait_s
        machine.wants_decision = True
        loop.run_once()
        counts.append(len(machine.of(PlacementDecided)))
    assert counts == [1, 1, 2]


@pytest.mark.parametrize("left", [0, 7])
def test_turns_are_short_while_the_workers_have_free_slots(
    monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("flowmesh_control.loop.event_loop.time.monotonic", lambda: now_s[0])

    class Slow(Answers):
        def apply(self, event: Event, now: float) -> list[Command]:
            if isinstance(event, CancelRequested):
                now_s[0] += UNDERLOADED_SLICE_S / 4
            return super().apply(event, now)

    rejections = (Rejection(D, RejectionCause.BUSY, left, ""),) if left else ()
    machine = Slow(wants_decision=True)
    loop = EventLoop(
        machine=machine,
        decide=lambda s: Decision((), rejections),
        executor=Backlog(),
        marker=CurrentEventMarker.in_memory(epoch=1),
        clock=lambda: 5.0,
    )
    loop.run_once()
    for _ in range(100):
        loop.post(CancelRequested(""))
    loop.run_once()
    turn_s = TURN_S if left else UNDERLOADED_SLICE_S
    assert len(machine.of(CancelRequested)) == pytest.approx(
        turn_s / (UNDERLOADED_SLICE_S / 4), abs=1
    )


def test_a_stalled_loop_reports_the_stall_before_any_other_event() -> None:
    now = [100.0]
    machine = Answers()
    executor = Backlog()
    loop = EventLoop(
        machine=machine,
        decide=lambda s: Decision((), ()),
        executor=executor,
        marker=CurrentEventMarker.in_memory(epoch=1),
        clock=lambda: now[0],
    )
    loop.run_once()
    now[0] += 1.5
    loop.post(CancelRequested("a"))
    loop.run_once()
    assert not machine.of(ControlStalled)
    now[0] += 30.0
    loop.post(CancelRequested("b"))
    loop.run_once()
    assert machine.received[-2:] == [ControlStalled(), CancelRequested("b")]


async def test_a_blob_being_stored_in_another_scope_counts_as_missing_in_this_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = digest_bytes(b"another's")
    puts = FailingPuts(monkeypatch)
    puts.refused.add(digest)
    check = CheckBlobs("run-b", {SCOPE: frozenset({digest})}, (SCOPE,))
    await bench.do(PutBlob(digest, b"another's", "run-a", "ns-other"), check)
    await until(lambda: bench.machine.of(BlobsChecked))
    assert bench.machine.of(BlobsChecked) == [BlobsChecked("run-b", frozenset({digest}))]
    puts.refused.clear()


async def test_outputs_are_copied_to_the_required_scope(bench: Bench) -> None:
    digest = digest_bytes(b"own")
    await blobs_of(bench.store).put(digest, b"own")
    check = CheckBlobs("run-1", {"group-x": frozenset({digest})}, (SCOPE, "group-x"))
    await bench.do(check)
    await until(lambda: bench.machine.of(BlobsChecked))
    assert bench.machine.of(BlobsChecked) == [BlobsChecked("run-1", frozenset())]
    assert await blobs_of(bench.store, "group-x").get(digest) == b"own"


async def test_a_look_up_reports_in_which_scope_it_found_a_result(bench: Bench) -> None:
    await bench.do(Publish(ActionKey(SCOPE, D), result()))
    await until(lambda: bench.machine.of(Published))
    await bench.do(LookUp(ActionKey("group-x", D), (SCOPE, "group-x")))
    await bench.do(LookUp(ActionKey(SCOPE, D), (SCOPE, "group-x")))
    await until(lambda: len(bench.machine.of(LookedUp)) == 2)
    assert sorted(e.found_in for e in bench.machine.of(LookedUp)) == ["", SCOPE]


async def test_a_composed_result_copies_its_chunks_into_its_scope(bench: Bench) -> None:
    data, composed = digest_bytes(b"chunk"), digest_bytes(b"manifest")
    await blobs_of(bench.store).put(data, b"chunk")
    chunks = (ChunkRef(rows=data, blob=data, count=1, bytes=5),)
    whole = Artifact("dataset", D, composed, rows=1, manifest=Manifest(Schema(), chunks))
    given = msgspec.structs.replace(result(), outputs={"rows": whole})
    await bench.do(Publish(ActionKey("group-x", D), given, copy_from=(SCOPE,)))
    await until(lambda: bench.machine.of(Published))
    assert await blobs_of(bench.store, "group-x").missing([data]) == set()
