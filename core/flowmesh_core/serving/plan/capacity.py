"""How many requests a second a component's replicas can serve."""

from collections.abc import Mapping, Sequence

import msgspec

from flowmesh_core.serving.profile import BatchProfile

UTILISATION = 0.6
"""The share of the best throughput that is planned with, until a capacity curve says better: with
uneven arrivals about 1 % of replies are late there, and many more soon above it."""

_GOLDEN_RATIO = (5**0.5 - 1) / 2


class PlannedReplica(msgspec.Struct, frozen=True):
    """A replica on one worker.

    Attributes:
        profile: of its component on the worker's device.
        cap: the largest batch; see ``batch_caps``.
        share: of the device, above 0 and at most 1.
        host: replicas of one host, of any stages, run one batch at a time, of all together; empty
            for a host of its own.
        is_continuous: an engine or a component that iterates: calls begin while others run, and
            ``profile`` has the time of a whole call by the number of those that run.
        call_lengths: the lengths of calls beside their mean, each of as many calls; empty for calls
            of one length.
    """

    profile: BatchProfile
    cap: int
    share: float = 1.0
    host: str = ""
    is_continuous: bool = False
    call_lengths: tuple[float, ...] = ()

    def length_of(self, request: int) -> float:
        """Returns the length of a request's call beside the mean: the same each time."""
        if not self.call_lengths:
            return 1.0
        return self.call_lengths[int(request * _GOLDEN_RATIO % 1 * len(self.call_lengths))]

    @property
    def calls_per_s(self) -> float:
        """The most calls a second with full batches."""
        return self.profile.best_rate(self.cap) * self.share


def requests_per_s(
    replicas: Sequence[PlannedReplica], visits: float, utilisation: float = UTILISATION
) -> float:
    """Returns the requests a second that a component's replicas keep up with.

    Args:
        replicas: all of the component.
        visits: how often a request calls the component, in the mean; above 0.
        utilisation: the share of the best throughput to plan with.
    """
    return utilisation * sum(r.calls_per_s for r in replicas) / visits


def bottleneck(
    components: Mapping[str, Sequence[PlannedReplica]], visits: Mapping[str, float]
) -> tuple[str, float]:
    """Returns the component that limits a service, and the requests a second that it allows.

    Args:
        components: all replicas of each; at least one component.
        visits: by component.
    """
    rates = {name: requests_per_s(found, visits[name]) for name, found in components.items()}
    name = min(rates, key=lambda n: (rates[n], n))
    return name, rates[name]
