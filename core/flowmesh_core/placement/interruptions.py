"""What spot workers cost beyond their price: the work that is lost when one is taken away. Pure.

``estimates`` adds it to the time and the dollars of an action on such a worker, so that a long
training goes where it is not interrupted, and short work where it is cheap.
"""

from flowmesh_core.placement.settings import INTERRUPTIONS_PER_HOUR

_HOUR_S = 3600.0


def expected_loss_s(
    busy_s: float, reload_s: float, *, per_hour: float = INTERRUPTIONS_PER_HOUR
) -> float:
    """Returns the seconds of work that an action loses by interruptions, on average.

    It is the number of interruptions to be expected while the action is on the worker, times the
    loss of one: what was done until then, half of the action on average, and the engine's load,
    which has to be repeated elsewhere. An action that stores checkpoints loses less.

    Args:
        busy_s: how long the action is on the worker: loading, fetching and running.
        reload_s: how long another worker loads the engine.
        per_hour: how often a worker is interrupted.
    """
    return per_hour / _HOUR_S * busy_s * (busy_s / 2.0 + reload_s)
