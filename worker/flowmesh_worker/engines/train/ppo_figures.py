"""Renames the metrics of a PPO step to the names that all trainers use.

Called by ``ppo_trainer`` for every logged step; imports nothing heavy.
"""

from collections.abc import Mapping

_SPREAD = "val/ratio_var"
"""The sample variance of the probability ratios of a step's updates."""


def ppo_figures(logged: Mapping[str, float], *, vf_coef: float, updates: int) -> dict[str, float]:
    """Returns a step's metrics, without those that depend on time or are undefined.

    A step with a single update has one ratio, whose sample variance is 0/0: TRL reports NaN, which
    does not mean divergence. Any other NaN stays, so that a divergence is detected.

    Args:
        logged: the argument that TRL's loop passes to ``log``.
        vf_coef: the weight of the value model's loss.
        updates: ratios of a step: epochs times mini-batches times micro-batches.
    """
    figures = dict(logged)
    figures.pop("eps", None)
    if updates == 1:
        figures.pop(_SPREAD, None)
    figures["learning_rate"] = figures.pop("lr")
    figures["reward"] = figures["objective/scores"]
    figures["kl"] = figures["objective/kl"]
    figures["loss"] = figures["loss/policy_avg"] + vf_coef * figures["loss/value_avg"]
    return figures
