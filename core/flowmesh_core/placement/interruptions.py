"""Predicts the work that is lost when a spot worker is taken away: its cost beyond the price. Pure.

``estimates`` adds this loss to the time and the dollars of an action on a spot worker. So a long
training goes where it is not interrupted, and short work goes where it is cheap.
"""

from flowmesh_core.placement.settings import INTERRUPTIONS_PER_HOUR

_HOUR_S = 3600.0


def expected_loss_s(
    busy_s: float, reload_s: float, *, per_hour: float = INTERRUPTIONS_PER_HOUR
) -> float:
    """Returns the seconds of work that an action loses through interruptions, on average.

    The loss is the expected number of interruptions while the action is on the worker, times the
    loss from one interruption. One interruption loses the work done so far, which is half of the
    action on average, and the load of the engine, which another worker must repeat. An action that
    stores checkpoints loses less.

    Args:
        busy_s: seconds that the action is on the worker: loading, fetching and running.
        reload_s: seconds that another worker needs to load the engine.
        per_hour: interruptions of a worker per hour.
    """
    return per_hour / _HOUR_S * busy_s * (busy_s / 2.0 + reload_s)
