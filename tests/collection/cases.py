"""What runs of the collection's workflows must give, and how a check proves that it looks at rows.

A case is checked three ways: its outputs are right; its check refuses the same outputs with any one
value of any one row changed; and with one row of the input changed the outputs change, as the check
asks for that input.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import flowmesh_sdk as fm

WORKFLOWS = Path(__file__).parent / "workflows"
Row = dict[str, Any]
Inputs = Mapping[str, list[Row]]
Outputs = dict[str, Any]
"""Rows or metrics by name, None where a step was skipped. Models and adapters are left out."""
Check = Callable[[Inputs, Outputs], None]


@dataclass(frozen=True)
class Case:
    """A workflow, and what its outputs must be.

    Attributes:
        check: raises an AssertionError where the outputs are not those of the rows.
        changed: of one input, its rows with one of them changed.
        rows: of inputs that are not in the file.
        params: of the workflow, in place of the file's.
        unchanged: outputs that the changed row does not reach.
        drawn: columns whose values no test can know; the check looks at their form alone.
    """

    check: Check
    changed: Mapping[str, list[Row]]
    rows: Mapping[str, list[Row]] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    unchanged: frozenset[str] = frozenset()
    drawn: frozenset[str] = frozenset()


def equal(expected: Callable[[Inputs], Outputs]) -> Check:
    """Returns a check that outputs are equal to those of a function; numbers to four digits."""

    def check(inputs: Inputs, outputs: Outputs) -> None:
        assert same(outputs, expected(inputs)), (outputs, expected(inputs))

    return check


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, floats to four digits."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-5)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def verify(name: str, case: Case, client: fm.Client, models: Mapping[str, Path]) -> None:
    """Runs a workflow twice and checks everything that the module's first lines say.

    Args:
        name: of the file.
        case: what it must give.
        client: the fabric.
        models: in place of those of the file, by the input's name.
    """
    loaded = fm.load(WORKFLOWS / f"{name}.yaml")
    declared = loaded.to_dict()["spec"].get("inputs", {})
    given = {n: m for n, m in models.items() if n in declared}
    written = {n: [as_row(r) for r in i["rows"]] for n, i in declared.items() if "rows" in i}
    rows = {**written, **case.rows}
    flow = loaded.with_values(params=case.params, inputs=given)
    digests, outputs = _run(flow, client)
    case.check(rows, outputs)
    for altered in alterations(outputs, case.drawn):
        with pytest.raises(AssertionError):
            case.check(rows, altered)
    other_digests, others = _run(flow.with_values(inputs=case.changed), client)
    case.check({**rows, **case.changed}, others)
    with pytest.raises(AssertionError):
        case.check(rows, others)
    equal_ones = {n for n in digests if digests[n] == other_digests[n]}
    assert equal_ones == case.unchanged


def as_row(value: Any) -> Row:
    """Returns a row as a workflow sees it."""
    return {"text": value} if isinstance(value, str) else value


def _run(flow: fm.Workflow, client: fm.Client) -> tuple[dict[str, str | None], Outputs]:
    run = flow.run(client=client, timeout_s=900, progress=False)
    digests = {n: None if o is None else o["digest"] for n, o in run.status().outputs.items()}
    outputs: Outputs = {}
    for name, output in run.result().items():
        if isinstance(output, fm.Rows):
            outputs[name] = output.to_list()
        elif output is None or isinstance(output, dict):
            outputs[name] = output
    return digests, outputs


def alterations(outputs: Outputs, drawn: Set[str] = frozenset()) -> Iterator[Outputs]:
    """Yields the outputs with one value changed, not of the drawn columns, and with a row less."""
    for name, output in outputs.items():
        rows = output if isinstance(output, list) else [output] if output else []
        for number, row in enumerate(rows):
            for column, value in row.items():
                if column in drawn:
                    continue
                altered = copy.deepcopy(outputs)
                target = altered[name][number] if isinstance(output, list) else altered[name]
                target[column] = other_value(value)
                yield altered
        if isinstance(output, list) and output:
            yield {**outputs, name: output[1:]}


def other_value(value: Any) -> Any:
    """Returns another value of the same type, or a text in place of null."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}."
        case list():
            return [*value[:-1], other_value(value[-1])] if value else [0]
        case dict():
            return {**value, "other": 1}
    return "other"
