"""Requests for images, with the arrivals and step counts of NeuStream's artifact."""

from dataclasses import dataclass

import numpy as np

from flowmesh_core.serving.profile import BatchProfile

ENCODE_S = 1.5e-3
"""The text encoder, for one request."""
REQUESTS = 500


@dataclass(frozen=True, slots=True)
class ImageModel:
    """A diffusion model: many denoising steps, then one decoding.

    Attributes:
        denoise: seconds of one step by batch size.
        decode: seconds of the decoder by batch size.
    """

    denoise: BatchProfile
    decode: BatchProfile

    def alone_s(self, steps: int) -> float:
        """Returns the latency of a request that has the device for itself."""
        return ENCODE_S + steps * self.denoise.at(1) + self.decode.at(1)


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """A request; ``steps`` is how often it is denoised."""

    id: str
    arrived_s: float
    deadline_s: float
    steps: int


def image_requests(
    model: ImageModel, rate: float, cv: float, scale: float, seed: int = 0
) -> list[ImageRequest]:
    """Draws requests as the artifact does, from numpy's legacy generator.

    Args:
        model: decides the deadlines.
        rate: requests a second.
        cv: coefficient of variation of the gamma distributed gaps.
        scale: the deadline is so many times the latency of an unloaded request.
        seed: 0 gives the artifact's own requests, bit for bit.
    """
    steps = np.random.RandomState(seed).randint(200, 250, REQUESTS)
    gaps = np.random.RandomState(seed).gamma(1 / cv**2, cv**2 / rate, REQUESTS)
    return [
        ImageRequest(f"{n:03}", at, at + scale * model.alone_s(count), count)
        for n, (at, count) in enumerate(zip(gaps.cumsum().tolist(), steps.tolist(), strict=True))
    ]
