"""The same load with real batches on one CPU core, in the processor time of its thread.

The kernel is a chain of 400 products with matrices of 64 x 64. Its time grows with the batch much
as the denoising step of DiT-S/2 does on an RTX 4090 (1.89 times from 1 to 20; there 1.83), and it
is about ten times faster, so that arrivals and deadlines are scaled to it. The clock of the load
moves by the thread's processor time alone: what else runs on the machine does not count, and time
without requests is skipped.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flowmesh_core.serving.profile import BatchProfile
from flowmesh_sim.paper.serving.neustream_replay import SMALL, Point, published_model
from flowmesh_sim.serving.batch_schedulers import (
    DECODE,
    DECODE_CAP,
    DENOISE_CAP,
    MARGIN_S,
    BatchScheduler,
)
from flowmesh_sim.serving.image_device import Served, serve
from flowmesh_sim.serving.image_requests import ImageModel, ImageRequest, image_requests

LAYERS, WIDTH = 400, 64
_REPEATS = 40


class CpuKernel:
    """The chain of products."""

    def __init__(self) -> None:
        """Makes matrices that keep the length of a vector about the same."""
        rng = np.random.RandomState(0)
        self._layers = rng.normal(size=(LAYERS, WIDTH, WIDTH)).astype(np.float32) / WIDTH**0.5
        self._inputs = rng.normal(size=(DENOISE_CAP, WIDTH)).astype(np.float32)
        small = published_model(SMALL)
        self._decode_layers = round(LAYERS * small.decode.at(1) / small.denoise.at(1))

    def execute(self, component: str, size: int) -> float:
        """Runs a batch and returns its processor time in seconds; see ``Execute``."""
        before = time.thread_time()
        if component == DECODE:
            for _ in range(size):  # its published time is proportional to the batch
                self._chain(1, self._decode_layers)
        else:
            self._chain(size, LAYERS)
        return time.thread_time() - before

    def profile(self, component: str, largest: int) -> BatchProfile:
        """Measures the median of each batch size."""
        sizes = range(1, largest + 1)
        self.execute(component, largest)
        runs = {b: sorted(self.execute(component, b) for _ in range(_REPEATS)) for b in sizes}
        return BatchProfile.of({b: times[_REPEATS // 2] for b, times in runs.items()})

    def _chain(self, size: int, layers: int) -> None:
        values = self._inputs[:size]
        for n in range(layers):
            values = values @ self._layers[n % LAYERS]


@dataclass(frozen=True, slots=True)
class Twin:
    """A measured kernel, and how much faster it is than the published model.

    Attributes:
        model: the measured profiles.
        pace: seconds of the kernel for one of the published model.
    """

    kernel: CpuKernel
    model: ImageModel
    pace: float

    @classmethod
    def measured(cls) -> "Twin":
        """Measures the kernel on this machine."""
        kernel = CpuKernel()
        model = ImageModel(
            kernel.profile("denoise", DENOISE_CAP), kernel.profile(DECODE, DECODE_CAP)
        )
        return cls(kernel, model, model.denoise.at(1) / published_model(SMALL).denoise.at(1))

    @property
    def margin_s(self) -> float:
        """The margin of predictions, scaled."""
        return MARGIN_S * self.pace

    def requests(self, point: Point) -> list[ImageRequest]:
        """Returns the point's requests, at the kernel's pace."""
        return image_requests(self.model, point.rate / self.pace, point.cv, point.scale)

    def serve(self, point: Point, make: Callable[[ImageModel], BatchScheduler]) -> Served:
        """Serves a point's requests with real batches."""
        return serve(
            self.requests(point), self.model, make(self.model), self.kernel.execute, point.scale
        )
