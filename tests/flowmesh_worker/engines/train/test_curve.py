"""The loss curve and the metrics of a trainer's log."""

from flowmesh_worker.engines.train.curve import curve, curve_rows, diverged, metrics

HISTORY = [
    {"loss": 4.0, "learning_rate": 0.2, "grad_norm": 1.0, "num_tokens": 10, "epoch": 0.5,
     "step": 2},
    {"loss": 1.0, "learning_rate": 0.1, "rewards/margins": 0.5, "num_tokens": 15.0, "epoch": 0.75,
     "step": 3},
    {"eval_loss": 2.0, "eval_runtime": 1.5, "eval_samples_per_second": 9.0, "epoch": 0.75,
     "step": 3},
    {"train_runtime": 3.0, "train_loss": 9.0, "total_flos": 1.0, "epoch": 0.75, "step": 3},
]  # fmt: skip


def test_a_step_is_one_row_without_times() -> None:
    first, last = curve_rows(HISTORY)
    assert first["step"] == 2
    assert last == {
        "step": 3, "epoch": 0.75, "loss": 1.0, "learning_rate": 0.1, "rewards_margins": 0.5,
        "num_tokens": 15.0, "eval_loss": 2.0,
    }  # fmt: skip


def test_the_common_columns_always_exist() -> None:
    schema = curve([]).schema
    assert schema is not None
    assert schema.names == ["epoch", "grad_norm", "learning_rate", "loss", "step"]


def test_the_loss_is_the_mean_over_steps() -> None:
    made = metrics(curve_rows(HISTORY), {"rows": 4}, 3)
    assert made == {
        "train_loss": (4.0 * 2 + 1.0) / 3, "eval_loss": 2.0, "rewards_margins": 0.5, "tokens": 15,
        "steps": 3, "epochs": 0.75, "rows": 4,
    }  # fmt: skip


def test_a_metric_that_is_not_a_finite_number_is_named() -> None:
    assert diverged({"loss": float("nan"), "step": 1}) == "loss"
    assert diverged({"loss": 1.0, "grad_norm": float("inf")}) == "grad_norm"
    assert not diverged({"loss": 1.0})
