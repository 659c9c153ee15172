"""``fmesh trace`` and ``fmesh replay``: exports recorded runs and simulates them elsewhere."""

from dataclasses import asdict
from pathlib import Path

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.trace import RecordedRun
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.run_lookup import all_runs, find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.exported_file import write_export
from flowmesh_cli.verbs.input_file import require_file
from flowmesh_cli.views import formatting
from flowmesh_core.units import nano_usd
from flowmesh_sim.replay.recorded_work import why_left_out
from flowmesh_sim.replay.recording import anonymous, read_recording, write_recording
from flowmesh_sim.replay.replay import Replayed, ReplaySpec, read_replay, replay
from flowmesh_sim.run.plots import draw_both, imported_pyplot

_TRACE_FIRST = (
    "to replay a run, write its trace with `fmesh trace {} --out runs.jsonl`, then"
    " `fmesh replay runs.jsonl`"
)


def export_trace(runs: list[str], *, every: bool, out: Path | None, place: Target) -> None:
    """Writes the trace of runs.

    Raises:
        CliError: a run does not exist, or the file cannot be written.
        FlowMeshError: a run has not ended.
    """
    with query_fabric(place) as http:
        if every:
            found = [r.uid for r in all_runs(http) if r.phase in ENDED_PHASES and not r.audit_of]
        else:
            found = [find_run(http, name) for name in runs or [""]]
        recorded_runs = [
            http.get(f"/v1/runs/{uid}/trace", RecordedRun) for uid in dict.fromkeys(found)
        ]
    data = write_recording(anonymous(recorded_runs))
    write_export(data, out, formatting.count(len(recorded_runs), "run"))
    empty = [run for run in recorded_runs if not run.parts]
    for run in empty[:_NAMED]:
        Terminal(as_json=False).note(f"{run.run} has nothing to replay: {why_left_out(run)}")
    if len(empty) > _NAMED:
        Terminal(as_json=False).note(f"and {len(empty) - _NAMED} more have nothing to replay")


def replay_file(trace: Path, *, policy: Path | None, plot: Path | None, as_json: bool) -> None:
    """Replays the runs of a file.

    Raises:
        CliError: a file cannot be read.
        SpecError: a file is not a trace or a policy.
        FlowMeshError: no run in it can be replayed, or a plot is wanted without matplotlib.
    """
    require_file(trace, f"check the path; {_TRACE_FIRST.format(trace)}")
    if policy is not None:
        require_file(policy)
    if plot is not None:
        imported_pyplot()
    spec = ReplaySpec() if policy is None else read_replay(policy)
    done = replay(read_recording(trace), spec)
    terminal = Terminal(as_json=as_json)
    if plot is not None:
        draw_both(done, plot)
        terminal.note(f"plot written to {plot}")
    if as_json:
        both = {"recorded": asdict(done.recorded), "replayed": asdict(done.replayed)}
        left_out = {str(number): why for number, why in done.left_out.items()}
        facts = {"policy": done.policy, "unknown": done.unknown, "left_out": left_out}
        terminal.answer({**facts, **both})
    else:
        show(terminal, done)


def show(terminal: Terminal, done: Replayed) -> None:
    """Writes the recorded and replayed totals side by side."""
    recorded, replayed = done.recorded, done.replayed
    terminal.text(
        f"{formatting.count(recorded.runs, 'run')} replayed, policy {done.policy} (simulated)"
    )
    for why in dict.fromkeys(done.left_out.values()):
        numbers = [str(n) for n, reason in done.left_out.items() if reason == why]
        more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
        terminal.text(
            f"  left out: number {', '.join(numbers[:_NAMED])}{more} in order of submission: {why}"
        )
    rows = [
        [name, before, after]
        for name, before, after in (
            ("from first to last", _s(recorded.makespan_s), _s(replayed.makespan_s)),
            *(
                (f"latency, {k}", _s(recorded.latency_s[k]), _s(replayed.latency_s[k]))
                for k in _SPREAD
            ),
            ("dollars, whole fleet", _usd(recorded.usd), _usd(replayed.usd)),
            ("dollars, on receipts", _usd(recorded.receipts_usd), _usd(replayed.receipts_usd)),
            ("energy", *formatting.energies(recorded.joules, replayed.joules)),
            (
                "goodput, actions/min",
                f"{recorded.goodput_per_min:.1f}",
                f"{replayed.goodput_per_min:.1f}",
            ),
            ("executed", str(recorded.executed), str(replayed.executed)),
            ("hits", str(recorded.hits), str(replayed.hits)),
        )
    ]
    terminal.table(["", "recorded", "replayed"], rows, right="recorded replayed")
    if done.unknown:
        parts = formatting.count(done.unknown, "action")
        terminal.text(
            f"  {parts} reused results of runs that are not in the trace: they take no time"
        )


_SPREAD = ("mean", "p50", "p99")
_NAMED = 5


def _s(seconds: float) -> str:
    return formatting.seconds(seconds)


def _usd(dollars: float) -> str:
    return formatting.usd(nano_usd(f"{dollars:.9f}"))
