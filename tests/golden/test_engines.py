"""Versions, defaults and results of the built-in engines are those that are recorded.

A cached result is found by its engine's versions and parameters. So results, and defaults that are
left out of names, may change only with a version.
"""

from dataclasses import replace
from typing import Any

import pytest
from tests.golden.engines import entry_of, problems, read, today

from flowmesh_core.catalog.contract import EngineContract, Param, ParamType

RAISED = {
    *("code.python", "dataset.import", "http.chat", "http.request"),
    *("eval.exact-match", "eval.multiple-choice", "eval.pass-at-k", "eval.win-rate"),
    *("llm.agent", "llm.embed", "llm.generate", "llm.score"),
    *("train.dpo", "train.grpo", "train.ppo", "train.reward", "train.sft"),
}
"""Engines whose results have changed once (ADR 32)."""


def test_engine_contracts_match_the_recorded_ones() -> None:
    recorded, found = read(), today()
    assert problems(recorded, found) == []
    assert found == recorded, "record it: python -m tests.golden.engines --write"


def test_each_engine_whose_results_changed_was_raised_once() -> None:
    versions = {name: (e["version"], e["implementation"]) for name, e in read().items()}
    assert versions == {name: (1, 2 if name in RAISED else 1) for name in versions}


OLD = EngineContract(
    "text.count",
    1,
    3,
    (),
    (),
    (Param("by", ParamType.STRING, "word"), Param("most", ParamType.INTEGER, 5, added=1)),
    identity_fields=("dtype",),
    minor=1,
)
FRESH = Param("fresh", ParamType.BOOLEAN, False, added=2)


def changed(new: EngineContract, results: Any = 1) -> list[str]:
    recorded = {OLD.name: entry_of(OLD, lambda: 1)}
    return problems(recorded, {new.name: entry_of(new, lambda: results)})


def params(**defaults: Any) -> tuple[Param, ...]:
    return tuple(replace(p, default=defaults.get(p.name, p.default)) for p in OLD.params)


@pytest.mark.parametrize(
    ("new", "results", "problem"),
    [
        (replace(OLD, params=params(most=6)), 1, "most was [1, 5], is [1, 6]: raise version"),
        (replace(OLD, params=params(by="line")), 1, "by was [0, 'word'], is [0, 'line']"),
        (replace(OLD, params=OLD.params[:1]), 1, "most was [1, 5], is None: raise version"),
        (replace(OLD, identity_fields=()), 1, "dtype was [0, 'auto'], is None"),
        (replace(OLD, params=(*OLD.params, replace(FRESH, added=0))), 1, "say added=2, and raise"),
        (replace(OLD, params=(*OLD.params, replace(FRESH, added=1))), 1, "say added=2, and raise"),
        (OLD, 2, "text.count: its results have changed: raise implementation"),
    ],
)
def test_a_change_without_a_version_is_refused(
    new: EngineContract, results: Any, problem: str
) -> None:
    (found,) = changed(new, results)
    assert problem in found


@pytest.mark.parametrize(
    ("new", "results"),
    [
        (OLD, 1),
        (replace(OLD, params=(*OLD.params, FRESH), minor=2), 1),
        (replace(OLD, params=params(most=6), version=2), 1),
        (replace(OLD, params=params(most=6), implementation=4), 2),
        (replace(OLD, implementation=4), 2),
    ],
)
def test_an_addition_and_a_raised_version_are_accepted(new: EngineContract, results: Any) -> None:
    assert changed(new, results) == []
