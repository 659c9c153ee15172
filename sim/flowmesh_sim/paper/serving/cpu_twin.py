"""The same load with real batches on one CPU core, in the processor time of its thread.

The kernel is a chain of 400 products with matrices of 64 x 64, and is about ten times faster than
the denoising step of DiT-S/2 on an RTX 4090, so that arrivals and deadlines are scaled to it. The
step's time grows 1.83 times from 1 to 20 requests. How much the chain's grows depends on the
machine and its BLAS, so it is measured, and as many of the products take one request's rows
whatever the batch as make it grow 1.83 times too. The clock of the load moves by the thread's
processor time alone: what else runs on the machine does not count, and time without requests is
skipped.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np

from flowmesh_core.serving.profile import BatchProfile
from flowmesh_sim.paper.serving.neustream_replay import (
    SMALL,
    Point,
    clockwork_cap,
    published_model,
)
from flowmesh_sim.serving.batch_schedulers import (
    DECODE,
    DECODE_CAP,
    DENOISE,
    DENOISE_CAP,
    MARGIN_S,
    BatchScheduler,
)
from flowmesh_sim.serving.clockwork import serve_by_clockwork
from flowmesh_sim.serving.image_device import Served, serve
from flowmesh_sim.serving.image_requests import ImageModel, ImageRequest, image_requests

LAYERS, WIDTH = 400, 64
ROWS = 2
"""Of a request: a product with one row takes another routine of BLAS, 2.4 times as fast."""
GROWTH_BATCH = 20
"""The largest batch whose latency is published."""
_REPEATS = 40


class CpuKernel:
    """The chain of products."""

    def __init__(self) -> None:
        """Makes matrices that keep the length of a vector about the same, and measures them."""
        rng = np.random.RandomState(0)
        self._layers = rng.normal(size=(LAYERS, WIDTH, WIDTH)).astype(np.float32) / WIDTH**0.5
        self._inputs = rng.normal(size=(DENOISE_CAP * ROWS, WIDTH)).astype(np.float32)
        small = published_model(SMALL)
        self._decode_layers = round(LAYERS * small.decode.at(1) / small.denoise.at(1))
        self._batch_layers = LAYERS
        wanted = small.denoise.at(GROWTH_BATCH) / small.denoise.at(1)
        whole = self._median_s(DENOISE, GROWTH_BATCH) / self._median_s(DENOISE, 1)
        self._batch_layers = batch_layers(whole, wanted)

    def execute(self, component: str, size: int) -> float:
        """Runs a batch and returns its processor time in seconds; see ``Execute``."""
        before = time.thread_time()
        if component == DECODE:
            for _ in range(size):  # its published time is proportional to the batch
                self._chain(1, self._decode_layers)
        else:
            self._chain(size, self._batch_layers)
            self._chain(1, LAYERS - self._batch_layers)
        return time.thread_time() - before

    def profile(self, component: str, largest: int) -> BatchProfile:
        """Measures the median of each batch size."""
        return BatchProfile.of({b: self._median_s(component, b) for b in range(1, largest + 1)})

    def _median_s(self, component: str, size: int) -> float:
        self.execute(component, size)
        return median(self.execute(component, size) for _ in range(_REPEATS))

    def _chain(self, size: int, layers: int) -> None:
        values = self._inputs[: size * ROWS]
        for n in range(layers):
            values = values @ self._layers[n % LAYERS]


def batch_layers(growth: float, wanted: float) -> int:
    """Returns how many of the layers take the whole batch, so that the chain grows as wanted.

    Args:
        growth: the time of a large batch over that of one request, where all layers take it.
        wanted: the same of the whole chain; all layers where theirs is less.
    """
    return LAYERS if growth <= wanted else round(LAYERS * (wanted - 1) / (growth - 1))


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
        model = ImageModel(kernel.profile(DENOISE, DENOISE_CAP), kernel.profile(DECODE, DECODE_CAP))
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

    def serve_by_clockwork(self, point: Point) -> Served:
        """Serves a point's requests with real batches of equal step counts, whole requests each."""
        cap, execute = clockwork_cap(point), self.kernel.execute
        return serve_by_clockwork(self.requests(point), self.model, cap, execute, pads=False)
