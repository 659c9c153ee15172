"""Replays of recorded runs: equal without changes, different with changes."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flowmesh_api.v1.trace import (
    AttemptRecord,
    EngineRecord,
    PartRecord,
    RecordedRun,
    StepDependency,
)
from flowmesh_api.v1.trace import StepRecord as Step
from flowmesh_core.errors import FlowMeshError, SpecError
from flowmesh_sim.replay.recorded_pace import RecordedDurations, batches_of
from flowmesh_sim.replay.recording import Recording, anonymous, read_recording, write_recording
from flowmesh_sim.replay.replay import replay, replay_of

REAL = Path(__file__).parent / "data/two-runs.jsonl"
"""Two small workflows as a laptop ran them: 10 steps of 0.1 and 0.2 s, then a second and a half."""
PRICE = 3_600_000_000  # a nano-dollar a millisecond


def attempt(step: str, chunk: int, action: str, **changes: Any) -> AttemptRecord:
    made = AttemptRecord(
        step=step,
        chunk=chunk,
        action=action,
        attempt=f"e-{action}",
        outcome="published",
        ended_s=1002.0,
        bill_nanousd=1,
        share_nanousd=1,
        units=1,
        run_s=2.0,
        worker="w",
        pool="p",
        device_class="cpu",
        device_memory_mib=4096,
        price_nanousd_per_hour=PRICE,
        signature="g",
        memory_mib=64,
        assigned_s=1000.0,
    )
    return replace(made, **changes)


def run(name: str = "run-1", *attempts: AttemptRecord, **changes: Any) -> RecordedRun:
    made = RecordedRun(
        run=name,
        tenant="team-a",
        phase="Succeeded",
        created_s=1000.0,
        ended_s=1005.0,
        publish="ns-team-a",
        lookup=("ns-team-a",),
        private="ns-team-a",
        engines=(EngineRecord("e", 1, 1, "actions", 1),),
        steps=(
            Step("a", "e", 1, 1, "COMPLETED"),
            Step("b", "e", 1, 1, "COMPLETED", (StepDependency("a"),)),
        ),
        parts=tuple(PartRecord(a.step, a.chunk, a.action) for a in attempts),
        attempts=attempts,
    )
    return replace(made, **changes)


CHAIN = run("run-1", attempt("a", 0, "x"), attempt("b", 0, "y", ended_s=1004.0))


def replayed(*runs: RecordedRun, **changes: Any) -> Any:
    return replay(anonymous(runs), replay_of(changes))


def test_a_real_trace_is_replayed_as_it_was() -> None:
    done = replay(read_recording(REAL), replay_of({}))
    was, now = done.recorded, done.replayed
    assert (was.runs, was.executed, was.hits) == (now.runs, now.executed, now.hits)
    assert now.makespan_s == pytest.approx(was.makespan_s, rel=0.15)
    assert now.receipts_usd == pytest.approx(was.receipts_usd, rel=0.15)


def test_a_trace_file_round_trips_and_contains_no_names(tmp_path: Path) -> None:
    recording = anonymous([CHAIN])
    data = write_recording(recording)
    for name in (b"team-a", b"run-1", b"e-x"):
        assert name not in data
    path = tmp_path / "t.jsonl"
    path.write_bytes(data)
    assert read_recording(path) == recording


def test_an_invalid_trace_file_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"kind": "trace", "version": 1, "runs": 1}\n{"kind": "what"}\n')
    with pytest.raises(SpecError) as caught:
        read_recording(path)
    assert "line 2 is not a line of a trace" in str(caught.value.problems)
    path.write_text('{"kind": "trace", "version": 9, "runs": 1}\n')
    with pytest.raises(SpecError) as caught:
        read_recording(path)
    assert "not a trace of version 1" in str(caught.value.problems)


def test_steps_wait_for_each_other_and_take_their_recorded_time() -> None:
    first = attempt("a", 0, "x", load_s=0.5)
    done = replayed(run("r", first, attempt("b", 0, "y", ended_s=1004.0)))
    assert done.replayed.makespan_s == pytest.approx(4.5, abs=0.2)
    assert done.replayed.executed == 2


def test_chunks_wait_only_for_their_input_chunk() -> None:
    chunks = (
        *(attempt("a", n, f"x{n}", run_s=1.0 + 4 * n, ended_s=1005.0) for n in range(2)),
        *(attempt("b", n, f"y{n}", run_s=5.0 - 4 * n, ended_s=1009.0) for n in range(2)),
    )
    steps = (CHAIN.steps[0], Step("b", "e", 1, 1, "COMPLETED", (StepDependency("a", rows=True),)))
    many = (EngineRecord("e", 1, 1, "actions", 8),)
    changes = {"steps": steps, "engines": many}
    pools = [{"name": "p", "device": "cpu", "workers": 4}]
    streaming = replayed(run("r", *chunks, **changes), pools=pools)
    barrier = replayed(run("r", *chunks, **{**changes, "steps": CHAIN.steps}), pools=pools)
    assert streaming.replayed.makespan_s < barrier.replayed.makespan_s - 3


def test_a_price_changes_dollars_and_nothing_else() -> None:
    cheap, dear = replayed(CHAIN, prices={"cpu": 1.0}), replayed(CHAIN, prices={"cpu": 3.0})
    assert dear.replayed.makespan_s == cheap.replayed.makespan_s
    assert dear.replayed.usd == pytest.approx(3 * cheap.replayed.usd, rel=1e-6)
    with pytest.raises(SpecError):
        replayed(CHAIN, prices={"h100": 1.0})


def test_without_sharing_recorded_hits_are_executed_again() -> None:
    parts = (PartRecord("a", 0, "x", "published", "run-1", 1),)
    later = run("run-2", created_s=1010.0, ended_s=1010.1, parts=parts)
    shared, apart = replayed(CHAIN, later), replayed(CHAIN, later, sharing="never")
    assert (shared.replayed.executed, shared.replayed.hits) == (2, 1)
    assert (apart.replayed.executed, apart.replayed.hits) == (3, 0)
    unknown = (PartRecord("a", 0, "z", "published", "gone", 1),)
    assert replayed(CHAIN, replace(later, parts=unknown)).unknown == 1


def test_more_workers_are_faster_and_another_policy_decides() -> None:
    many = [attempt("a", n, f"x{n}", ended_s=1000.0 + 2 * n) for n in range(8)]
    steps = (CHAIN.steps[0],)
    runs = [run(f"run-{n}", many[n], steps=steps, ended_s=1020.0) for n in range(8)]
    pools = [{"name": "p", "device": "cpu", "workers": 4, "hostMemoryMib": 64}]
    one = replayed(*runs, control={"replicas": False})
    assert replayed(*runs, pools=pools).replayed.makespan_s < one.replayed.makespan_s / 2
    assert replayed(*runs, pools=pools, policy="fifo").replayed.runs == 8


def test_attempts_that_fit_no_pool_and_unreplayable_runs_are_refused() -> None:
    pools = [{"name": "p", "device": "cpu", "hostMemoryMib": 32}]
    with pytest.raises(FlowMeshError, match="reserved 64 MiB; the largest pool has 32"):
        replayed(CHAIN, pools=pools)
    with pytest.raises(FlowMeshError, match="none of its attempts has a worker"):
        replayed(run("r", attempt("a", 0, "x", signature="")))
    nothing = run("r", phase="Cancelled")
    with pytest.raises(FlowMeshError, match="it was cancelled before any attempt had a worker"):
        replayed(nothing)
    failed = run("r", attempt("a", 0, "x", outcome="crashed"), phase="Failed", parts=())
    with pytest.raises(FlowMeshError, match="worker; it failed before any attempt had a result"):
        replayed(nothing, failed)
    hits = (PartRecord("a", 0, "x", "published", "gone", 1),)
    with pytest.raises(FlowMeshError, match="it had only cache hits"):
        replayed(run("r", parts=hits))
    with pytest.raises(FlowMeshError, match="has not ended"):
        replayed(replace(CHAIN, phase="Running"))
    with pytest.raises(FlowMeshError, match="is not known to the simulator"):
        replayed(run("r", attempt("a", 0, "x", device_class="abacus")))
    with pytest.raises(SpecError):
        replay_of({"polices": "fifo"})


def test_a_run_without_a_recorded_action_is_left_out_with_the_reason() -> None:
    done = replayed(CHAIN, run("run-2", phase="Cancelled", created_s=1001.0))
    assert done.recorded.runs == done.replayed.runs == 1
    assert done.left_out == {2: "it was cancelled before any attempt had a worker"}


def test_concurrent_attempts_are_not_counted_as_slow() -> None:
    beside = [attempt("a", n, f"x{n}", run_s=4.0, ended_s=1004.0) for n in range(2)]
    alone = attempt("a", 9, "x9", run_s=4.0, ended_s=1010.0)
    assert batches_of([*beside, alone]) == {"e-x0": 2.0, "e-x1": 2.0, "e-x9": 1.0}


def test_a_faster_device_takes_less() -> None:
    paces = RecordedDurations([EngineRecord("e", 1, 1, "tokens", 8, accelerator=True)])
    a = attempt("a", 0, "x", tokens_in=100, tokens_out=200, component_bytes=10**9)
    here = paces.recorded("e", a, "cpu", 1.0)
    there = paces.recorded("e", a, "nvidia-h100-nvl", 1.0)
    assert here.alone_s == pytest.approx(2.0)
    assert there.alone_s < here.alone_s / 20


def test_learned_durations_predict_unrecorded_attempts() -> None:
    paces = RecordedDurations([EngineRecord("e", 1, 1, "rows", 1)])
    seen = [
        attempt("a", n, f"x{n}", units=10 * n, run_s=n / 2, ended_s=1.0 + 9 * n)
        for n in range(1, 30)
    ]
    paces.train(("e", a) for a in seen)
    new = attempt("a", 0, "new", units=125, run_s=99.0)
    assert paces.predicted("e", new, "cpu").alone_s == pytest.approx(6.25, rel=0.2)


def test_a_recording_has_the_lines_of_its_runs() -> None:
    assert isinstance(anonymous([CHAIN]), Recording)
    assert len(write_recording(anonymous([CHAIN])).splitlines()) == 1 + 1 + 1 + 2 + 2 + 2
