"""Every panel and alert, evaluated by a Prometheus that scrapes a control plane and a router."""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from hack.dashboards.ask import RULES, Asked, alerts, asked, refused, silent
from hack.dashboards.prometheus import Prometheus, program, scraping
from openai import BadRequestError
from tests.flowmesh_control.fabric import API_TOKEN, Fabric, control_plane, workflow
from tests.flowmesh_control.metrics.test_exposition import BROKEN
from tests.flowmesh_control.test_end_to_end import DOUBLE, sleeps
from tests.flowmesh_serving.stack import Stack, ask, echo_stack, services

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


RANK = {
    "apiVersion": "flowmesh.dev/v1alpha1",
    "kind": "FlowMeshService",
    "metadata": {"name": "rank", "namespace": "team-a"},
    "spec": {
        "components": {"rank": {"python": {"code": "def compute(batch):\n    return batch\n"}}},
        "stages": [{"name": "best", "component": "rank"}],
        "reply": {"best": "best"},
    },
}
"""A service for which there is no worker."""


def query(n: int) -> dict[str, Any]:
    """As DOUBLE, and another result for every n."""
    text = json.dumps(DOUBLE).replace("n * 2", f"n * {n}")
    return dict(json.loads(text))


def waits() -> dict[str, Any]:
    """A step that no worker can run."""
    spec = sleeps(1)
    spec["steps"][0]["resources"] = {"memory": "4Ti"}
    return spec


async def work(fabric: Fabric, stack: Stack, round_: int) -> None:
    """Three tenants' runs: hits, failures, a budget that is too small; and calls of a service."""
    for n in range(2 + 4 * round_, 6 + 4 * round_):
        pair = [query(n), sleeps(0.3)]
        uids = [
            await fabric.submit(workflow(f"r{n}", spec), namespace=tenant, resume=False)
            for spec in pair
            for tenant in ("team-a", "team-b")
        ]
        uids.append(await fabric.submit(workflow("broken", BROKEN), resume=False))
        for uid in uids:
            await fabric.ended(uid)
    async with stack.client as client:
        await ask(client, "one two")
        async for _ in await ask(client, "one two", stream=True):
            pass
        with pytest.raises(BadRequestError):
            await ask(client, "one", extra_body={"priority": 1})
    poor = {**sleeps(0.2, 4), "budgetUsd": "0.0003"}
    await fabric.ended(
        await fabric.submit(workflow("poor", poor), namespace="team-c", resume=False)
    )


@pytest.fixture
async def scraped(tmp_path: Path) -> AsyncIterator[tuple[Fabric, Stack, Prometheus]]:
    control = control_plane(tmp_path)
    await control.start()
    (tmp_path / "serving").mkdir()
    listed = services(slo_s=30.0, miss_rate=0.01)
    async with (
        ClientSession() as http,
        echo_stack(tmp_path / "serving", listed=listed) as stack,
    ):
        fabric = Fabric(tmp_path, control, http)
        routers = [stack.router.url]
        with scraping(
            control.url, tmp_path, token=API_TOKEN, rules=RULES, routers=routers
        ) as server:
            yield fabric, stack, server
        await asyncio.to_thread(fabric.close)
    await control.stop()


async def test_every_panel_shows_data_and_every_alert_can_be_evaluated(
    scraped: tuple[Fabric, Stack, Prometheus],
) -> None:
    fabric, stack, server = scraped
    async with asyncio.timeout(180):  # it finds its targets some seconds after it answers
        while not await asyncio.to_thread(server.instant, "flowmesh_leader_epoch"):
            pass
    fabric.worker("local-w1", "--power-w", "60")
    fabric.worker("local-w2", "--power-w", "60")
    await fabric.submit(workflow("waits", waits()), resume=False)
    await fabric.submit(
        workflow("rich", {**sleeps(120), "budgetUsd": "2"}), namespace="team-c", resume=False
    )
    await fabric.call("POST", "/v1/services", body={"document": RANK})
    quiet: list[tuple[Asked, str]] = []
    for round_ in range(12):  # a rate needs two scrapes during the work, however fast that is
        await work(fabric, stack, round_)
        quiet = await asyncio.to_thread(
            silent, server, window="10s", without=("operator", "replica", "vllm", "dcgm")
        )
        if not quiet:
            break
    assert [(q.panel, q.plain("10s"), why) for q, why in quiet] == []
    assert await asyncio.to_thread(refused, server) == []
    await until_state(server, "FlowMeshBudgetExhausted", "firing")
    rules = await asyncio.to_thread(server.rules)
    assert {r["name"]: r.get("lastError", "") for r in rules if r["health"] != "ok"} == {}
    states = {r["name"]: r["state"] for r in rules}
    assert len(states) == len(alerts())
    assert states["FlowMeshLeaderMissing"] == "inactive"
    await fabric.control.stop()
    await until_state(server, "FlowMeshLeaderMissing", "pending")


async def until_state(server: Prometheus, name: str, state: str) -> None:
    async with asyncio.timeout(180):
        while True:
            rules = await asyncio.to_thread(server.rules)
            if {r["name"]: r["state"] for r in rules}[name] == state:
                return


def test_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    """Series of a whole day in a second: Prometheus' own tool for rules."""
    cases = Path(__file__).with_name("alerts.yaml").read_text(encoding="utf-8")
    (tmp_path / "alerts.yaml").write_text(cases.replace("RULES", str(RULES)), encoding="utf-8")
    tool = program("promtool")
    for command in (
        ["check", "rules", str(RULES)],
        ["test", "rules", str(tmp_path / "alerts.yaml")],
    ):
        done = subprocess.run([tool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_runbook_and_every_queried_metric_is_documented() -> None:
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    headings = {line.strip("# ").lower() for line in page.splitlines() if line.startswith("#")}
    for rule in alerts():
        address, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert address.startswith("https://")
        assert address.endswith("/docs/observability.md")
        assert anchor in headings, rule["alert"]
    names = (ROOT / "docs" / "names.md").read_text(encoding="utf-8")
    texts = [q.expr for q in asked()] + [rule["expr"] for rule in alerts()]
    used = {n for text in texts for n in re.findall(r"flowmesh_[a-z_]+", text)}
    ends = re.compile(r"_(total|bucket|count|sum)$")
    unknown = {n for n in used if f"`{n}`" not in names and f"`{ends.sub('', n)}`" not in names}
    assert unknown == set()
