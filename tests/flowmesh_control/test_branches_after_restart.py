"""Branches that join again: a real worker, and a control plane that is killed in between."""

from typing import Any

import pytest
from tests.flowmesh_control.fabric import Fabric, workflow
from tests.flowmesh_control.test_end_to_end import rows_of
from tests.flowmesh_control.test_restart import fabric_elsewhere, until_status

from flowmesh_api.v1.runs import RunStatus

pytestmark = pytest.mark.slow
__all__ = ["fabric_elsewhere"]


def sql(name: str, query: str, when: str = "", **inputs: Any) -> dict[str, Any]:
    step = {"name": name, "uses": "data.sql", "inputs": inputs, "with": {"query": query}}
    return {**step, "when": when} if when else step


def joined(name: str, query: str, **inputs: Any) -> dict[str, Any]:
    """A step that runs after the control plane was killed."""
    return {**sql(name, query, **inputs), "after": ["slow"]}


SPEC = {
    "params": {"yes": True, "no": False},
    "inputs": {"tickets": {"rows": [{"id": 1, "team": "a"}, {"id": 2, "team": "b"}]}},
    "steps": [
        sql("a", "select id, team from t where team = 'a'", "params.yes", t="inputs.tickets"),
        sql("b", "select id, team from t where team = 'b'", "params.yes", t="inputs.tickets"),
        sql("c", "select id, team from t", "params.no", t="inputs.tickets"),
        {"name": "d", "uses": "test.noop", "when": "params.no"},
        {
            "name": "slow",
            "uses": "test.sleep",
            "after": ["a", "b", "c"],
            "with": {"seconds": 1.5},
        },
        joined("listed", "select id from t order by id", t=["a.rows", "c.rows", "b.rows"]),
        joined("first", "select id from t", t={"firstOf": ["c.rows", "b.rows", "a.rows"]}),
        joined(
            "filled",
            "select t.id, c.team from t left join c using (id)",
            t="a.rows",
            c={"from": "c.rows", "whenSkipped": "empty"},
        ),
        joined("left-out", "select id from t", t="c.rows"),
        {
            "name": "without",
            "uses": "test.noop",
            "after": ["slow"],
            "inputs": {"hint": {"from": "d.metrics", "whenSkipped": "absent"}},
            "with": {"value": 7},
        },
    ],
    "outputs": {n: f"{n}.rows" for n in ("listed", "first", "filled")},
}


async def test_every_form_of_an_input_gives_its_rows_after_the_control_plane_was_killed(
    fabric_elsewhere: Fabric,
) -> None:
    fabric, control = fabric_elsewhere, fabric_elsewhere.control
    fabric.worker("local-w1")
    uid = await fabric.submit(workflow("branches", SPEC))

    def slow_runs(status: RunStatus) -> bool:
        states = {s.path: s.state for s in status.steps}
        return states["b"] == "COMPLETED" and states["slow"] in ("READY", "RUNNING")

    await until_status(fabric, uid, slow_runs)
    control.kill()  # type: ignore[attr-defined]
    assert await control.start(fabric.http) == 2  # type: ignore[arg-type,func-returns-value]
    status = await fabric.ended(uid)
    assert status.phase == "Succeeded", status
    reasons = {s.path: s.reason for s in status.steps if s.state == "SKIPPED"}
    assert reasons == {
        "c": "condition",
        "d": "condition",
        "left-out": "input skipped: t from c",
    }
    rows = {name: await rows_of(fabric, uid, name) for name in status.outputs}
    assert rows == {
        "listed": [{"id": 1}, {"id": 2}],
        "first": [{"id": 2}],
        "filled": [{"id": 1, "team": None}],
    }
    why = await fabric.call("GET", f"/v1/runs/{uid}/why?step=without")
    assert why["inputs"] == [
        {"port": "hint", "skipped": ["d was skipped: condition"], "instead": "absent"}
    ]
