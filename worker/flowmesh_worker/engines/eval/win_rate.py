"""The engine ``eval.win-rate``: how often the first of two answers wins, and its significance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flowmesh_core.dataset import ColumnType, Schema
from flowmesh_core.identity import canonical_bytes
from flowmesh_worker.engine_api import DatasetInput, Rows
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.eval.intervals import sign_test, wilson
from flowmesh_worker.engines.eval.scorer import Scorer, require_columns

OUTCOME = "outcome"
_TIE = 0.5
_LABELS = ("labelA", "labelB", "labelTie")


@dataclass(frozen=True, slots=True)
class _Judged:
    """A comparison: ``outcome`` is 1 if a wins; ``a_first`` is None if the order is unknown."""

    outcome: float
    a_first: bool | None
    columns: Mapping[str, Any]


class WinRate(Scorer):
    """The engine ``eval.win-rate``; a tie counts as half a win."""

    def score(self, params: Mapping[str, Any], given: DatasetInput) -> tuple[dict[str, Any], Rows]:
        """Scores every comparison; see the contract."""
        _check_params(params)
        pair = [str(c) for c in params.get("pair") or ()]
        names = [params.get(p) for p in ("verdict", "scoreA", "scoreB", "first")]
        if given.manifest.row_count:
            wanted = [*(str(n) for n in names if n is not None), *pair]
            require_columns(given.manifest.schema, *wanted)
        judge = _Judge(params)
        judged = [judge(row, number) for number, row in enumerate(given.rows(), 1)]
        _require_both_orders(judged, "the rows were judged")
        comparisons = _merged(judged, pair) if pair else judged
        metrics = _metrics(judged, comparisons, float(params["confidence"]))
        metrics["unparsed"] = judge.unparsed
        types = given.manifest.schema.types()
        kinds = {n: k for n, k in types.items() if n in pair or not pair}
        rows = [{**c.columns, OUTCOME: c.outcome} for c in comparisons]
        return metrics, Rows(rows, Schema.of(kinds | {OUTCOME: ColumnType.FLOAT}))


def _check_params(params: Mapping[str, Any]) -> None:
    if (params.get("scoreA") is None) != (params.get("scoreB") is None):
        raise bad_input("with has only one of scoreA and scoreB", "name both columns, or verdict")
    labels = [_label(params[name]) for name in _LABELS]
    if len(set(labels)) != len(labels):
        raise bad_input(
            f"with.labelA, labelB and labelTie are {', '.join(map(repr, labels))}",
            "give three different labels",
        )
    if params["verdictNames"] == "places" and params.get("first") is None:
        raise bad_input(
            "with.verdictNames is places, and the order of the answers is not known",
            "name the column with.first",
        )


class _Judge:
    """Turns rows into outcomes, and counts verdicts that cannot be parsed."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params
        self._labels = dict(
            zip((_label(params[n]) for n in _LABELS), (1.0, 0.0, _TIE), strict=True)
        )
        self.unparsed = 0

    def __call__(self, row: Mapping[str, Any], number: int) -> _Judged:
        a_first = self._a_first(row, number)
        if self._params.get("verdict") is None:
            a, b = (self._number(row, str(self._params[n]), number) for n in ("scoreA", "scoreB"))
            return _Judged(_TIE if a == b else float(a > b), a_first, row)
        outcome = self._labels.get(_label(row[str(self._params["verdict"])]))
        if outcome is None:
            self.unparsed += 1
            outcome = _TIE
        elif self._params["verdictNames"] == "places" and not a_first:
            outcome = 1 - outcome
        return _Judged(outcome, a_first, row)

    def _a_first(self, row: Mapping[str, Any], number: int) -> bool | None:
        column = self._params.get("first")
        if column is None:
            return None
        outcome = self._labels.get(_label(row[str(column)]))
        if outcome not in (0.0, 1.0):
            raise bad_input(
                f"row {number}: column {column!r} has {row[str(column)]!r}",
                f"it names the answer shown first: {self._params['labelA']!r} or"
                f" {self._params['labelB']!r} (with.labelA, with.labelB)",
            )
        return outcome == 1

    @staticmethod
    def _number(row: Mapping[str, Any], column: str, number: int) -> float:
        value = row[column]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_input(
                f"row {number}: column {column!r} has {value!r}: expected a number",
                "score both answers of every row, or leave the row out",
            )
        return value


def _merged(judged: Sequence[_Judged], pair: Sequence[str]) -> list[_Judged]:
    """Returns one comparison for each pair, in order of first appearance; orders weigh equally."""
    groups: dict[bytes, list[_Judged]] = {}
    for one in judged:
        groups.setdefault(canonical_bytes([one.columns[c] for c in pair]), []).append(one)
    merged = []
    for group in groups.values():
        named = {c: group[0].columns[c] for c in pair}
        _require_both_orders(group, f"the pair {named!r} was judged")
        merged.append(_Judged(_majority(group), None, named))
    return merged


def _require_both_orders(judged: Sequence[_Judged], what: str) -> None:
    orders = {j.a_first for j in judged}
    if orders in ({True}, {False}):
        raise bad_input(
            f"{what} with {'a' if orders == {True} else 'b'} first only",
            "judge both orders, or leave with.first out",
        )


def _majority(group: Sequence[_Judged]) -> float:
    """Returns 1, 0.5 or 0 by the mean of the orders' means, in exact arithmetic."""
    shares = [Fraction(o.twice, 2 * o.count) for o in _by_order(group).values()]
    mean = sum(shares) / len(shares)
    return _TIE if mean * 2 == 1 else float(mean * 2 > 1)


@dataclass(slots=True)
class _Order:
    """The comparisons with the same answer shown first; ``twice`` is 2 Σ outcome."""

    twice: int = 0
    count: int = 0

    @property
    def rate(self) -> float:
        return self.twice / (2 * self.count)


def _by_order(judged: Sequence[_Judged]) -> dict[bool | None, _Order]:
    orders: dict[bool | None, _Order] = {}
    for one in judged:
        order = orders.setdefault(one.a_first, _Order())
        order.twice += int(2 * one.outcome)
        order.count += 1
    return orders


def _metrics(
    judged: Sequence[_Judged], comparisons: Sequence[_Judged], confidence: float
) -> dict[str, Any]:
    """Computes the metrics; the comparisons are the judged rows, or one for each pair."""
    wins = sum(c.outcome > _TIE for c in comparisons)
    losses = sum(c.outcome < _TIE for c in comparisons)
    found: dict[str, Any] = {
        "wins": wins,
        "losses": losses,
        "ties": len(comparisons) - wins - losses,
        "count": len(comparisons),
        "p_value": sign_test(wins, losses),
    }
    orders = _by_order(judged)
    if True in orders:
        found |= {
            "win_rate_first": orders[True].rate,
            "win_rate_second": orders[False].rate,
        }
    parts = list(_by_order(comparisons).values())
    share = sum(o.rate for o in parts) / len(parts) if parts else None
    # The effective size of a mean of shares of unequal size; the count itself if they are equal.
    size = len(parts) ** 2 / sum(1 / o.count for o in parts) if parts else 0.0
    low, high = wilson(share or 0.0, size, confidence)
    return found | {"win_rate": share, "win_rate_low": low, "win_rate_high": high}


def _label(value: Any) -> str:
    """Returns a verdict in lower case, without the punctuation that models put around it."""
    return str(value).strip().strip("[](){}*\"'`.,:;!").casefold()
