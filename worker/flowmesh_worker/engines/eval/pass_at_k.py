"""The engine ``eval.pass-at-k``: the probability that one of k samples solves a problem."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowmesh_core.catalog.verifiers import NAME
from flowmesh_core.dataset import ColumnType, Schema
from flowmesh_core.identity import canonical_bytes
from flowmesh_worker.engine_api import DatasetInput, Rows
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.eval.intervals import wilson_of_means
from flowmesh_worker.engines.eval.scorer import Scorer, require_columns
from flowmesh_worker.engines.verifiers.verifiers import JudgedCompletion, compile_checks

SAMPLES, PASSED = "samples", "passed"
_SHOWN = 3
Right = Callable[[Mapping[str, Any], int], bool]


@dataclass(slots=True)
class _Problem:
    """A problem's samples; ``named`` are its columns."""

    named: Mapping[str, Any]
    samples: int = 0
    passed: int = 0


class PassAtK(Scorer):
    """The engine ``eval.pass-at-k``."""

    def score(self, params: Mapping[str, Any], given: DatasetInput) -> tuple[dict[str, Any], Rows]:
        """Scores every sample; see the contract."""
        names, ks = [str(c) for c in params["problem"]], _ks(params["k"])
        if not names:
            raise bad_input("with.problem is empty", "name the columns that identify a problem")
        if given.manifest.row_count:
            source = params["correct"] or params["completion"]
            require_columns(given.manifest.schema, *names, str(source))
        problems = _grouped(given.rows(), names, _judge(params))
        _refuse_few(problems, max(ks))
        metrics: dict[str, Any] = {
            "problems": len(problems),
            "samples": sum(p.samples for p in problems),
        }
        rows: list[dict[str, Any]] = [
            {**p.named, SAMPLES: p.samples, PASSED: p.passed} for p in problems
        ]
        for k in ks:
            shares = [pass_at_k(p.samples, p.passed, k) for p in problems]
            name = f"pass_at_{k}"
            for row, share in zip(rows, shares, strict=True):
                row[name] = share
            trials = metrics["samples"] / k
            low, high = wilson_of_means(shares, trials, float(params["confidence"]))
            mean = math.fsum(shares) / len(shares) if shares else None
            metrics |= {name: mean, f"{name}_low": low, f"{name}_high": high}
        types = given.manifest.schema.types()
        kinds = {n: types[n] for n in names if n in types}
        kinds |= {SAMPLES: ColumnType.INT, PASSED: ColumnType.INT}
        kinds |= {f"pass_at_{k}": ColumnType.FLOAT for k in ks}
        return metrics, Rows(rows, Schema.of(kinds))


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Returns the unbiased estimate 1 - C(n-c, k) / C(n, k) (Chen et al., arXiv:2107.03374).

    Args:
        samples: n, at least k.
        passed: c, the samples that pass.
        k: number of tries.
    """
    return 1 - math.comb(samples - passed, k) / math.comb(samples, k)


def _ks(value: Any) -> list[int]:
    ks = list(value)
    if not ks or any(type(k) is not int or k < 1 for k in ks):
        raise bad_input(f"with.k is {ks!r}", "write whole numbers of at least 1, as [1, 4]")
    return sorted(set(ks))


def _judge(params: Mapping[str, Any]) -> Right:
    if params["judge"] is None:
        column = str(params["correct"])
        return lambda row, number: _boolean(row[column], column, number)
    counted = [c for c in params["judge"] if "tokens" in c]
    if counted or not params["judge"]:
        raise bad_input(
            f"with.judge: {counted[0][NAME]} cannot count tokens of a text"
            if counted
            else "with.judge is empty",
            "use length-at-most with characters" if counted else "name a check",
        )
    checks, column = compile_checks(params["judge"]), str(params["completion"])

    def right(row: Mapping[str, Any], number: int) -> bool:
        completion = JudgedCompletion("" if row[column] is None else str(row[column]), 0)
        verdicts = [check.judge(completion, row) for check in checks]
        for check, verdict in zip(checks, verdicts, strict=True):
            if verdict is None:
                raise bad_input(
                    f"row {number}: {check.name} has no target in its target column",
                    "give every row a target, or leave the row out",
                )
        return all(verdicts)

    return right


def _boolean(value: Any, column: str, number: int) -> bool:
    if not isinstance(value, bool):
        raise bad_input(
            f"row {number}: column {column!r} has {value!r}: expected true or false",
            "make it with eval.exact-match or data.sql, or judge completions with with.judge",
        )
    return value


def _grouped(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], right: Right
) -> list[_Problem]:
    """Returns the problems in order of first appearance."""
    found: dict[bytes, _Problem] = {}
    for number, row in enumerate(rows, 1):
        named = {n: row[n] for n in names}
        problem = found.setdefault(canonical_bytes(list(named.values())), _Problem(named))
        problem.samples += 1
        problem.passed += right(row, number)
    return list(found.values())


def _refuse_few(problems: Sequence[_Problem], k: int) -> None:
    few = [p for p in problems if p.samples < k]
    if not few:
        return
    shown = "; ".join(f"{dict(p.named)!r} has {p.samples}" for p in few[:_SHOWN])
    more = f"; and {len(few) - _SHOWN} more problems" if len(few) > _SHOWN else ""
    raise bad_input(
        f"pass@{k} needs {k} samples of every problem: {shown}{more}",
        "raise `samples` of the step that generates them, or lower with.k",
    )
