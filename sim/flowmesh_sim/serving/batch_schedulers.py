"""Who decides the next batch of a device that serves an image model step by step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flowmesh_core.serving.queue.batching import FormedBatch, form_batch
from flowmesh_core.serving.queue.finish_order import ReadyBatch, next_batch
from flowmesh_core.serving.queue.neustream import (
    form_batch_by_budget,
    form_batch_by_remaining_work,
)
from flowmesh_core.serving.queue.waiting_call import WaitingCall
from flowmesh_sim.serving.image_requests import ImageModel

DENOISE, DECODE = "denoise", "decode"
DENOISE_CAP, DECODE_CAP = 20, 10
EQUAL_SHARE = 0.5
MARGIN_S = 0.035
"""How far a prediction of the rest of a request may be off; as in NeuStream's artifact."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision about the idle device.

    Attributes:
        component: what runs next; empty where nothing does.
        batch: the calls that run.
        late: calls to drop.
    """

    component: str
    batch: tuple[WaitingCall, ...]
    late: tuple[WaitingCall, ...]


class BatchScheduler(Protocol):
    """Decides whenever the device is idle and calls wait."""

    def choose(
        self, denoise: Sequence[WaitingCall], decode: Sequence[WaitingCall], now_s: float
    ) -> Choice:
        """Chooses the next batch; both queues are in order of arrival."""
        ...


@dataclass(slots=True)
class FlowMeshScheduler:
    """The shipped functions, with equal shares of the device for both components.

    Attributes:
        margin_s: how far a prediction may be off.
    """

    model: ImageModel
    margin_s: float = MARGIN_S
    finishes_s: dict[str, float] = field(default_factory=dict)

    def choose(
        self, denoise: Sequence[WaitingCall], decode: Sequence[WaitingCall], now_s: float
    ) -> Choice:
        """See :class:`BatchScheduler`."""
        model = self.model
        formed = {
            DENOISE: form_batch(denoise, model.denoise, DENOISE_CAP, self.margin_s, now_s),
            DECODE: form_batch(decode, model.decode, DECODE_CAP, 0.0, now_s),
        }
        late = formed[DENOISE].late + formed[DECODE].late
        profiles = {DENOISE: model.denoise, DECODE: model.decode}
        chosen = next_batch(
            [
                ReadyBatch(
                    name,
                    now_s,
                    profiles[name].at(len(batch.calls)),
                    EQUAL_SHARE,
                    self.finishes_s.get(name, 0.0),
                )
                for name, batch in formed.items()
                if batch.calls
            ],
            now_s,
        )
        if chosen is None:
            return Choice("", (), late)
        self.finishes_s[chosen.instance] = chosen.finish_s
        return Choice(chosen.instance, formed[chosen.instance].calls, late)


@dataclass(slots=True)
class NeuStreamScheduler:
    """NeuStream as its artifact runs it, or with Algorithm 1 of the paper.

    Attributes:
        scale: the latency scale: a component's target is so many times its time alone.
        denoise_target: the part of it that denoising uses.
        by_budget: Algorithm 1's rule in place of the artifact's.
        margin_s: how far a prediction may be off.
    """

    model: ImageModel
    scale: float
    denoise_target: float
    by_budget: bool = False
    margin_s: float = MARGIN_S

    def choose(
        self, denoise: Sequence[WaitingCall], decode: Sequence[WaitingCall], now_s: float
    ) -> Choice:
        """See :class:`BatchScheduler`: a waiting decoding goes first."""
        if decode:
            profile = self.model.decode
            limit = profile.largest_within(self.scale * profile.at(1), DECODE_CAP)
            return Choice(DECODE, tuple(decode[:limit]), ())
        formed = self._denoise(denoise, now_s)
        return Choice(DENOISE if formed.calls else "", formed.calls, formed.late)

    def _denoise(self, waiting: Sequence[WaitingCall], now_s: float) -> FormedBatch:
        profile = self.model.denoise
        target_s = self.denoise_target * self.scale * profile.at(1)
        limit = profile.largest_within(target_s, DENOISE_CAP)
        if self.by_budget:
            return form_batch_by_budget(waiting, limit)
        return form_batch_by_remaining_work(waiting, profile, limit, self.margin_s, now_s)
