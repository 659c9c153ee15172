"""Clockwork as NeuStream's artifact rebuilds it: whole requests in a batch, on one executor.

A batch needs one number of steps. The artifact batches requests of equal step counts only. A
Clockwork that pads to the longest member is a much stronger baseline and is given beside it.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from flowmesh_sim.serving.batch_schedulers import DECODE, DENOISE
from flowmesh_sim.serving.image_device import Execute, Served
from flowmesh_sim.serving.image_requests import ENCODE_S, ImageModel, ImageRequest


class _Batch(NamedTuple):
    latest_start_s: float
    members: Sequence[ImageRequest]
    steps: int


def serve_by_clockwork(
    requests: Sequence[ImageRequest],
    model: ImageModel,
    cap: int,
    execute: Execute,
    *,
    pads: bool,
) -> Served:
    """Serves requests; each time the batch with the earliest latest start runs.

    Args:
        requests: by time of arrival.
        model: the times that it expects.
        cap: the largest batch.
        execute: runs each step of a batch.
        pads: whether a batch may hold different step counts, and runs as long as the longest.
    """
    arriving = deque(requests)
    waiting: list[ImageRequest] = []
    now_s, in_time, dropped, batches, members = 0.0, 0, 0, 0, 0
    while arriving or waiting:
        if not waiting:
            now_s = max(now_s, arriving[0].arrived_s)
        while arriving and arriving[0].arrived_s <= now_s:
            waiting.append(arriving.popleft())
        kept = [r for r in waiting if now_s + _seconds(model, r.steps, 1) <= r.deadline_s]
        dropped += len(waiting) - len(kept)
        waiting = kept
        if not waiting:
            continue
        batch = min(
            _feasible(waiting, model, cap, now_s, pads=pads), key=lambda b: b.latest_start_s
        )
        batches, members = batches + 1, members + len(batch.members)
        now_s += _taken_s(execute, batch)
        in_time += sum(now_s <= r.deadline_s for r in batch.members)
        done = {r.id for r in batch.members}
        waiting = [r for r in waiting if r.id not in done]
    return Served(in_time, dropped, members / max(batches, 1))


def _taken_s(execute: Execute, batch: _Batch) -> float:
    size = len(batch.members)
    return (
        ENCODE_S + sum(execute(DENOISE, size) for _ in range(batch.steps)) + execute(DECODE, size)
    )


def _seconds(model: ImageModel, steps: int, size: int) -> float:
    return ENCODE_S + steps * model.denoise.at(size) + model.decode.at(size)


def _feasible(
    waiting: Sequence[ImageRequest], model: ImageModel, cap: int, now_s: float, *, pads: bool
) -> list[_Batch]:
    """Returns, for each group that may run together, its largest batch that is in time."""
    groups: dict[int, list[ImageRequest]] = defaultdict(list)
    for request in waiting:
        groups[0 if pads else request.steps].append(request)
    return [
        next(
            batch
            for size in range(min(cap, len(group)), 0, -1)
            if (batch := _batch(group[:size], model)).latest_start_s >= now_s
        )
        for group in groups.values()
    ]


def _batch(members: Sequence[ImageRequest], model: ImageModel) -> _Batch:
    steps = max(r.steps for r in members)
    earliest_s = min(r.deadline_s for r in members)
    return _Batch(earliest_s - _seconds(model, steps, len(members)), members, steps)
