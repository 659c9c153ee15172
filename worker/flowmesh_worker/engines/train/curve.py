"""Turns a trainer's log into the loss curve and the metrics of a step.

Times are removed: the same training must give the same bytes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flowmesh_core.dataset.schema import ColumnType, Schema
from flowmesh_worker.engine_api import Rows

_TIMED = ("runtime", "per_second", "total_flos")
_TRAIN = "train_"
_EVAL = "eval_"
_ALWAYS = ("epoch", "loss", "learning_rate", "grad_norm")
_NOT_METRICS = frozenset({"step", "epoch", "loss", "learning_rate", "grad_norm", "num_tokens"})


def curve_rows(history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row for each step that was logged or evaluated, in order.

    Args:
        history: a trainer's ``state.log_history``.
    """
    rows: dict[int, dict[str, Any]] = {}
    for entry in history:
        figures = {_column(k): v for k, v in entry.items() if _is_reproducible(k)}
        if figures.keys() - {"step", "epoch"}:
            rows.setdefault(int(entry["step"]), {"step": int(entry["step"])}).update(
                {k: float(v) for k, v in figures.items() if k != "step"}
            )
    return [rows[s] for s in sorted(rows)]


def curve(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Returns the rows of :func:`curve_rows` as an output; the basic columns always exist."""
    names = {*_ALWAYS, *(k for row in rows for k in row)} - {"step"}
    types = {"step": ColumnType.INT, **dict.fromkeys(names, ColumnType.FLOAT)}
    return Rows(list(rows), Schema.of(types))


def metrics(
    rows: Sequence[Mapping[str, Any]], counts: Mapping[str, Any], steps: int
) -> dict[str, Any]:
    """Returns the metrics of a whole training.

    Args:
        rows: of :func:`curve_rows`.
        counts: of the examples.
        steps: of the optimizer.

    Returns:
        ``train_loss`` (the mean over steps), ``steps``, ``epochs``, ``tokens`` if the trainer
        counts them, the last value of every other metric, and the counts.
    """
    last: dict[str, Any] = {}
    weighted, before = 0.0, 0
    for row in rows:
        if "loss" in row:
            weighted += row["loss"] * (row["step"] - before)
            before = row["step"]
        last.update(row)
    out = {k: v for k, v in last.items() if k not in _NOT_METRICS and not k.endswith("num_tokens")}
    if before:
        out["train_loss"] = weighted / before
    if "num_tokens" in last:
        out["tokens"] = int(last["num_tokens"])
    return {**out, "steps": steps, "epochs": float(last.get("epoch", 0.0)), **counts}


def diverged(entry: Mapping[str, Any]) -> str:
    """Returns the name of the first metric that is not finite; empty if all are."""
    return next((k for k, v in entry.items() if isinstance(v, float) and not math.isfinite(v)), "")


def _is_reproducible(name: str) -> bool:
    return not name.startswith(_TRAIN) and not any(t in name for t in _TIMED)


def _column(name: str) -> str:
    """Returns a name that SQL accepts unquoted: ``rewards/margins`` → ``rewards_margins``."""
    return name.replace("/", "_")
