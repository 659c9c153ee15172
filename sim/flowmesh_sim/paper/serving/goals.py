"""Compares the replay with the published logs and with the goals that were set before it ran."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from flowmesh_sim.paper.serving.neustream_replay import LARGE, SMALL, Counts, Point
from flowmesh_sim.paper.serving.replay_results import Replay, TwinCounts
from flowmesh_sim.serving.image_requests import REQUESTS

PEAK = Point(SMALL, "rate", rate=4.0, cv=2.0, scale=3.0)
"""The load that the paper's largest ratio is at; equal to a published point but for its logs."""
BEYOND = Point(SMALL, "beyond", rate=6.0, cv=2.0, scale=3.0)
"""Half as much again."""
LOW_RATES_UP_TO, HIGH_RATES_FROM = 2.5, 3.0
"""Between them and above, logs of one point differ too much to judge NeuStream's simulation by."""
BEHIND_MAX = 5
PEAK_MIN = 485
FRESH_MIN = 0.97
TWIN_ERROR_MAX = 30


@dataclass(frozen=True, slots=True)
class ReplayGoal:
    """A goal and what was reached."""

    name: str
    goal: str
    reached: str
    met: bool


def error(logs: Sequence[int], simulated: int) -> int:
    """Returns how far a simulated count is from the nearest log."""
    return min(abs(log - simulated) for log in logs)


def fidelity(replay: Replay) -> list[ReplayGoal]:
    """Compares the simulated baselines with the published logs (goals N9 of the design)."""
    large = [p for p in replay if p.model == LARGE]
    low = [p for p in _small_rates(replay) if p.rate <= LOW_RATES_UP_TO or p.rate == PEAK.rate]
    high = [p for p in _small_rates(replay) if p.rate >= HIGH_RATES_FROM]
    neustream = {p: error(p.neustream_logs, replay[p].neustream) for p in [*large, *low]}
    clockwork = {p: error(p.clockwork_logs, replay[p].clockwork) for p in [*large, *high]}
    return [
        _bounded("Clockwork, DiT-XL/2, 24 points", [clockwork[p] for p in large], 10, 35),
        _bounded("NeuStream, DiT-XL/2, 24 points", [neustream[p] for p in large], 20, 55),
        _bounded("NeuStream, DiT-S/2, rates 0.5 to 2.5 and 4", [neustream[p] for p in low], 25, 25),
        _bounded("Clockwork, DiT-S/2, rates 3 to 4", [clockwork[p] for p in high], 15, 15),
    ]


def _small_rates(replay: Replay) -> list[Point]:
    return [p for p in replay if p.model == SMALL and p.sweep == "rate"]


def _bounded(name: str, errors: Sequence[int], mean: int, most: int) -> ReplayGoal:
    return ReplayGoal(
        f"error against the logs: {name}",
        f"mean ≤ {mean}, most ≤ {most} of {REQUESTS}",
        f"mean {fmean(errors):.1f}, most {max(errors)}",
        fmean(errors) <= mean and max(errors) <= most,
    )


def advantage(replay: Replay, fresh: Sequence[Counts]) -> list[ReplayGoal]:
    """Compares FlowMesh with the baselines (goals N11 and T1 of the design).

    Args:
        replay: with the artifact's own requests.
        fresh: the load ``PEAK`` at seeds that nothing was chosen on.
    """
    peak = next(c for p, c in replay.items() if _same_load(p, PEAK))
    beyond = replay[BEYOND]
    behind = max(c.neustream - c.flowmesh for p, c in replay.items() if p is not BEYOND)
    share = fmean(c.flowmesh for c in fresh) / REQUESTS
    off = 1.96 * stdev(c.flowmesh for c in fresh) / REQUESTS / len(fresh) ** 0.5
    return [
        ReplayGoal(
            "never far behind NeuStream, 48 points",
            f"≤ {BEHIND_MAX} requests fewer",
            f"{behind} fewer at worst" if behind > 0 else "at least as many everywhere",
            behind <= BEHIND_MAX,
        ),
        _ratio("against NeuStream, 6 requests/s", beyond.flowmesh, beyond.neustream, 1.08),
        _ratio("against Clockwork, 4 requests/s", peak.flowmesh, peak.clockwork, 5.0),
        _ratio(
            "against padding Clockwork, 4 requests/s", peak.flowmesh, peak.padding_clockwork, 1.8
        ),
        ReplayGoal(
            "in time at 4 requests/s, the artifact's requests",
            f"≥ {PEAK_MIN} of {REQUESTS}",
            f"{peak.flowmesh}",
            peak.flowmesh >= PEAK_MIN,
        ),
        ReplayGoal(
            f"in time at 4 requests/s, {len(fresh)} fresh seeds",
            f"≥ {FRESH_MIN:.0%} in the mean",
            f"{share:.1%} ± {100 * off:.1f} ({_mean(fresh, lambda c: c.neustream)} NeuStream, "
            f"{_mean(fresh, lambda c: c.clockwork)} Clockwork, "
            f"{_mean(fresh, lambda c: c.padding_clockwork)} padding)",
            share >= FRESH_MIN,
        ),
    ]


def twin_goals(counts: Mapping[Point, TwinCounts]) -> list[ReplayGoal]:
    """Compares NeuStream's scheduler with real batches and the logs (goal N10 of the design)."""
    neustream = [_outside(p.neustream_logs, c.neustream) for p, c in counts.items()]
    clockwork = [
        _outside(p.clockwork_logs, c.clockwork)
        for p, c in counts.items()
        if p.sweep == "rate" and p.rate >= HIGH_RATES_FROM
    ]
    return [
        ReplayGoal(
            f"real batches against the logs: {name}, {len(errors)} points",
            f"≤ {TWIN_ERROR_MAX} of {REQUESTS} outside the logs",
            f"most {max(errors)}",
            max(errors) <= TWIN_ERROR_MAX,
        )
        for name, errors in (("NeuStream", neustream), ("Clockwork", clockwork))
    ]


def _outside(logs: Sequence[int], counted: int) -> int:
    """How far a count is outside the range of the logs."""
    return max(min(logs) - counted, counted - max(logs), 0)


def _same_load(a: Point, b: Point) -> bool:
    return (a.model, a.sweep, a.rate, a.cv, a.scale) == (b.model, b.sweep, b.rate, b.cv, b.scale)


def _ratio(name: str, ours: int, theirs: int, least: float) -> ReplayGoal:
    return ReplayGoal(
        name,
        f"≥ {least:g} times as many",
        f"{ours} and {theirs}: {ours / theirs:.2f} times",
        ours >= least * theirs,
    )


def _mean(counts: Sequence[Counts], of: Callable[[Counts], int]) -> str:
    return f"{fmean(map(of, counts)) / REQUESTS:.1%}"
