"""Attacker: T2, a tenant of an ``unattributed`` scope with a token for its own namespace.
Action: asks every GET route about its runs, whose results and attempts another tenant shares.
Must not happen: an answer contains the uid, the namespace or the workflow of the other's run.
"""

import itertools
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.attacks.tenants import ADMIN, ATTACKER, NAMESPACES, OWNER, Tenants, tenants
from tests.flowmesh_control import waiting
from tests.flowmesh_control.fabric import machine_of, workflow

pytestmark = pytest.mark.slow
SECRET_NAME = "payroll"
STEPS = ("double", "map", "say", "sleep")
OUTPUTS = ("mapped", "count", "said")
NOT_ASKED = {"/worker"}
"""A WebSocket for workers."""


def ends() -> dict[str, Any]:
    return {
        "inputs": {"numbers": {"rows": [{"n": n} for n in range(40)]}},
        "steps": [
            {
                "name": "double",
                "uses": "data.sql",
                "inputs": {"rows": "inputs.numbers"},
                "with": {"query": "select n, n * 2 as twice from rows order by n"},
            },
            {"name": "map", "uses": "test.map", "inputs": {"rows": "double.rows"}},
            {
                "name": "say",
                "uses": "code.python",
                "with": {"code": "def main():\n    print('a line')\n    return [{'n': 1}]"},
            },
        ],
        "outputs": {"mapped": "map.rows", "count": "map.metrics", "said": "say.rows"},
    }


def sleeps(value: str) -> dict[str, Any]:
    step = {"name": "sleep", "uses": "test.sleep", "with": {"seconds": 600, "value": value}}
    return {"steps": [step]}


class Observed:
    """A fabric in which both tenants run the same, and what the attacker is shown of it."""

    def __init__(self, fabric: Tenants) -> None:
        self._fabric = fabric
        self.uids: dict[str, list[str]] = {OWNER: [], ATTACKER: []}

    async def submit(self, who: str, name: str, spec: dict[str, Any]) -> str:
        full = f"{SECRET_NAME}-{name}" if who == OWNER else name
        document = workflow(full, spec, NAMESPACES[who])
        accepted = await self._fabric.ask(
            who, "POST", "/v1/runs", body={"document": document}, status=201
        )
        self.uids[who].append(accepted["uid"])
        return str(accepted["uid"])

    async def both_run(self) -> None:
        """The attacker gets hits, joins the owner's attempt, and is joined by the owner."""
        for who in (OWNER, ATTACKER):
            uid = await self.submit(who, "ended", ends())
            await self._fabric.ended(uid)
        machine = machine_of(self._fabric.control)
        for value, order in (("joined", (OWNER, ATTACKER)), ("joins", (ATTACKER, OWNER))):
            for who in order:
                uid = await self.submit(who, value, sleeps(value))
                await waiting.until(lambda uid=uid: machine.state.runs[uid].steps["sleep"].begun)

    @property
    def hidden(self) -> list[bytes]:
        return [x.encode() for x in (*self.uids[OWNER], NAMESPACES[OWNER], SECRET_NAME)]

    async def answers(self) -> AsyncIterator[tuple[str, int, bytes]]:
        """Every GET route with every value that it may be asked with."""
        runner = self._fabric.control._runner
        assert runner is not None
        templates = {
            route.resource.canonical
            for route in runner.app.router.routes()
            if route.method == "GET" and route.resource is not None
        }
        names = await self._names()
        for template in sorted(templates - NOT_ASKED):
            for path in self._paths(template, names):
                status, answer = await self._answer(path)
                yield path, status, answer

    async def _names(self) -> list[str]:
        """Digests and references of what the attacker's run made and used."""
        uid = self.uids[ATTACKER][0]
        made = await self._fabric.ask(ATTACKER, "GET", f"/v1/runs/{uid}/made")
        outputs = await self._fabric.ask(ATTACKER, "GET", f"/v1/runs/{uid}/outputs")
        references = [found["reference"] for found in outputs.values()]
        return [*(m["digest"] for m in made), *references]

    def _paths(self, template: str, names: list[str]) -> Iterable[str]:
        own = NAMESPACES[ATTACKER]
        uids = self.uids[ATTACKER] if "{uid}" in template else [""]
        of_run = "{uid}" in template
        of_name = OUTPUTS if of_run else names
        for uid, name in itertools.product(uids, of_name if "{name}" in template else [""]):
            path = template.replace("{uid}", uid).replace("{name}", quote(name))
            yield path
            yield f"{path}?namespace={own}"
            yield from (f"{path}?step={step}" for step in STEPS if of_run)
            yield from (f"{path}?name={n}" for n in (*OUTPUTS, "double.rows") if of_run)
            yield from (f"{path}?direction={d}&depth=9" for d in ("up", "down") if not of_run)
            yield from (f"{path}?reference={quote(n)}&namespace={own}" for n in names if not of_run)

    async def _answer(self, path: str) -> tuple[int, bytes]:
        if "/watch" not in path:
            return await self._fabric.answer(ATTACKER, path)
        headers = {"Authorization": f"Bearer {ATTACKER}-token"}
        url = self._fabric.control.url + path
        async with self._fabric.http.get(url, headers=headers) as response:
            return response.status, await response.content.readline()


@pytest.mark.parametrize("disclosure", ["unattributed", "open"])
async def test_no_route_names_a_run_of_another_namespace(disclosure: str, tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        policy = {"name": "all", "scope": "all", "namespaces": ["*"], "disclosure": disclosure}
        await fabric.ask(ADMIN, "PUT", "/v1/policies", body=[policy])
        fabric.worker("local-w1", "--allow-user-code", "--cpus", "8")
        observed = Observed(fabric)
        await observed.both_run()
        answered, naming = set(), {}
        async for path, status, answer in observed.answers():
            answered |= {path.partition("?")[0]} if status == 200 else set()
            found = [hidden for hidden in observed.hidden if hidden in answer]
            if found:
                naming[path] = (status, found)
        if disclosure == "unattributed":
            assert naming == {}
        else:  # what names runs where that is wanted would have been seen
            shown = {path.rpartition("/")[2].partition("?")[0] for path in naming}
            assert {"receipt", "why"} <= shown, shown
        ended = observed.uids[ATTACKER][0]
        views = ("", "/receipt", "/why", "/explain", "/lineage", "/trace", "/logs", "/openlineage")
        assert {f"/v1/runs/{ended}{view}" for view in views} <= answered
        for uid in (*observed.uids[OWNER][1:], *observed.uids[ATTACKER][1:]):
            await fabric.ask(ADMIN, "POST", f"/v1/runs/{uid}/cancel")
        own = await fabric.ask(OWNER, "GET", f"/v1/runs/{observed.uids[OWNER][0]}")
        assert own["namespace"] == NAMESPACES[OWNER]
