"""One device that serves an image model step by step, in virtual time or with real batches."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flowmesh_core.serving.queue.waiting_call import WaitingCall
from flowmesh_sim.serving.batch_schedulers import DECODE, BatchScheduler
from flowmesh_sim.serving.image_requests import ENCODE_S, ImageModel, ImageRequest

Execute = Callable[[str, int], float]
"""Runs a batch of a component, by name and size, and returns the seconds that it took."""


@dataclass(frozen=True, slots=True)
class Served:
    """What came of all requests.

    Attributes:
        in_time: replies before their deadlines.
        dropped: requests that were given up.
        mean_batch: members of a denoising batch.
    """

    in_time: int
    dropped: int
    mean_batch: float


def profiled(model: ImageModel) -> Execute:
    """Returns batches that take what the model's profile says."""
    return lambda component, size: (model.decode if component == DECODE else model.denoise).at(size)


@dataclass(slots=True)
class _Pending:
    request: ImageRequest
    left: int
    passed_over: int = 0


def serve(
    requests: Sequence[ImageRequest],
    model: ImageModel,
    scheduler: BatchScheduler,
    execute: Execute,
    scale: float,
) -> Served:
    """Serves requests in order of arrival; the clock moves by what ``execute`` returns.

    Args:
        requests: by time of arrival.
        model: what a scheduler's budgets are made from.
        scheduler: decides each batch.
        execute: runs it.
        scale: the latency scale, for budgets.
    """
    arriving = deque(requests)
    denoise: dict[str, _Pending] = {}
    decode: dict[str, _Pending] = {}
    now_s, in_time, dropped, steps, members = 0.0, 0, 0, 0, 0
    while arriving or denoise or decode:
        if not denoise and not decode:
            now_s = max(now_s, arriving[0].arrived_s)
        while arriving and arriving[0].arrived_s <= now_s:
            request = arriving.popleft()
            denoise[request.id] = _Pending(request, request.steps)
        choice = scheduler.choose(
            [_denoise_call(p, model, scale, now_s) for p in denoise.values()],
            [WaitingCall(p.request.id, p.request.deadline_s) for p in decode.values()],
            now_s,
        )
        for call in choice.late:
            dropped += 1
            denoise.pop(call.id, None) or decode.pop(call.id)
        if not choice.batch:
            continue
        now_s += execute(choice.component, len(choice.batch))
        if choice.component == DECODE:
            for call in choice.batch:
                in_time += now_s <= decode.pop(call.id).request.deadline_s
            continue
        steps, members = steps + 1, members + len(choice.batch)
        _advance(denoise, decode, {call.id for call in choice.batch})
    return Served(in_time, dropped, members / max(steps, 1))


def _advance(denoise: dict[str, _Pending], decode: dict[str, _Pending], batch: set[str]) -> None:
    """Counts a denoising step of a batch, and moves what it finished to decoding."""
    for number, pending in list(denoise.items()):
        if number not in batch:
            pending.passed_over += 1
            continue
        pending.left -= 1
        if not pending.left:
            decode[number] = denoise.pop(number)


def _denoise_call(pending: _Pending, model: ImageModel, scale: float, now_s: float) -> WaitingCall:
    request = pending.request
    visits = request.steps - pending.left + 1  # with the one that it waits for
    return WaitingCall(
        request.id,
        request.deadline_s,
        visits=pending.left,
        rest_s=model.decode.at(1),
        passed_over=pending.passed_over,
        budget_s=scale * (ENCODE_S + visits * model.denoise.at(1)) - (now_s - request.arrived_s),
    )
