"""The metrics of a PPO step, and those that mean divergence."""

import math

import pytest

from flowmesh_worker.engines.train.curve import diverged
from flowmesh_worker.engines.train.ppo_figures import ppo_figures

LOGGED = {
    "eps": 3,
    "lr": 1e-5,
    "objective/scores": 0.5,
    "objective/kl": 0.0,
    "loss/policy_avg": 1.0,
    "loss/value_avg": 2.0,
    "val/ratio": 1.0,
    "val/ratio_var": 0.25,
    "episode": 4,
}


def test_metric_names_are_those_of_all_trainers_and_do_not_depend_on_time() -> None:
    figures = ppo_figures(LOGGED, vf_coef=0.1, updates=4)
    assert figures["loss"] == pytest.approx(1.2)
    assert (figures["reward"], figures["kl"], figures["learning_rate"]) == (0.5, 0.0, 1e-5)
    assert figures["val/ratio_var"] == 0.25
    assert not {"eps", "lr"} & set(figures)


def test_an_undefined_variance_of_a_single_ratio_is_not_a_divergence() -> None:
    figures = ppo_figures({**LOGGED, "val/ratio_var": math.nan}, vf_coef=0.1, updates=1)
    assert not diverged(figures)
    assert "val/ratio_var" not in figures


@pytest.mark.parametrize(
    ("name", "updates"),
    [
        ("val/ratio_var", 2),
        ("val/ratio", 1),
        ("objective/kl", 1),
        ("loss/policy_avg", 1),
        ("loss/value_avg", 1),
    ],
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_every_other_metric_that_is_not_a_finite_number_is_a_divergence(
    name: str, updates: int, value: float
) -> None:
    assert diverged(ppo_figures({**LOGGED, name: value}, vf_coef=0.1, updates=updates))
