"""How long an attempt may run where its step does not say, and at most."""

from dataclasses import replace

import pytest

from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.timeouts import attempt_timeout_s, duration, timeout_problem
from flowmesh_core.identity.action import action_id, signature
from flowmesh_core.units import Digest

BY_NAME = {c.name: c for c in contracts()}
MINUTE, HOUR, DAY = 60, 3_600, 86_400
TABLE = {
    "data.": (10 * MINUTE, 24 * HOUR),
    "code.": (10 * MINUTE, 24 * HOUR),
    "retrieve.": (10 * MINUTE, 24 * HOUR),
    "eval.": (10 * MINUTE, 24 * HOUR),
    "http.": (30 * MINUTE, 24 * HOUR),
    "source.": (30 * MINUTE, 24 * HOUR),
    "model.": (30 * MINUTE, 24 * HOUR),
    "dataset.": (30 * MINUTE, 24 * HOUR),
    "llm.": (6 * HOUR, 48 * HOUR),
    "train.": (7 * DAY, 7 * DAY),
    "test.": (0, 0),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_every_engine_has_the_timeouts_of_its_kind(name: str) -> None:
    contract = BY_NAME[name]
    usual, most = TABLE[f"{name.split('.', maxsplit=1)[0]}."]
    assert (contract.default_timeout_s, contract.max_timeout_s) == (usual, most)
    assert attempt_timeout_s(contract, {}, 0.0) == usual
    assert attempt_timeout_s(contract, {}, 7.0) == 7.0
    assert timeout_problem(contract, most) == ""


def test_a_default_timeout_is_never_shorter_than_the_engines_timeout_parameter() -> None:
    code = BY_NAME["code.python"]
    assert attempt_timeout_s(code, {"timeoutS": 60.0}, 0.0) == 600
    assert attempt_timeout_s(code, {"timeoutS": 7_200.0}, 0.0) == 7_260
    assert attempt_timeout_s(code, {"timeoutS": 7_200.0}, 30.0) == 30


@pytest.mark.parametrize("name", ["data.sql", "code.python", "llm.generate", "train.sft"])
def test_timeouts_are_not_part_of_any_name(name: str) -> None:
    contract = BY_NAME[name]
    other = replace(contract, default_timeout_s=1.0, max_timeout_s=2.0, timeout_param="x")
    params = {p.name: "x" for p in contract.params if p.required}
    inputs = {p.name: Digest("a" * 64) for p in contract.inputs if p.name != "*"}
    names = {action_id(c, params, {}, inputs) for c in (contract, other)}
    classes = {signature(c, params, {}, {}, "class") for c in (contract, other)}
    assert (len(names), len(classes)) == (1, 1)


def test_durations_are_printed_as_users_write_them() -> None:
    told = [duration(s) for s in (600, 1_800, 21_600, 86_400, 172_800, 604_800, 90, 1.5)]
    assert told == ["10m", "30m", "6h", "24h", "48h", "7d", "90s", "1.5s"]
