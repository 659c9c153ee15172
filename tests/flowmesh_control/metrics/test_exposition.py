"""``GET /metrics`` of a real control plane whose real workers have run, shared and failed."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from tests.flowmesh_control.fabric import Fabric, control_plane, machine_of, workflow
from tests.flowmesh_control.metrics_text import counters, samples, total
from tests.flowmesh_control.test_end_to_end import DOUBLE, sleeps
from tests.flowmesh_control.waiting import until

from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.protocol.messages import WorkerShape

pytestmark = pytest.mark.slow

BROKEN: dict[str, Any] = {
    **DOUBLE,
    "steps": [{**DOUBLE["steps"][0], "with": {"query": "select cast('nothing_such' as int)"}}],
    "outputs": {"doubled": "double.rows"},
}
UNFINISHED = (
    "flowmesh_bill_usd_total",
    "flowmesh_receipts_usd_total",
    "flowmesh_paid_usd_total",
    "flowmesh_saved_usd_total",
    "flowmesh_joules_total",
    "flowmesh_actions_executed_total",
    "flowmesh_action_cache_hits_total",
)
"""As docs/observability.md says: the counters that no change of leader sets back."""


async def page(fabric: Fabric) -> bytes:
    found = await fabric.call("GET", "/metrics")
    assert isinstance(found, bytes)
    return found


async def busy_fabric(fabric: Fabric) -> None:
    """Work, hits of two kinds, and a failure, of two tenants."""
    fabric.worker("local-w1", "--power-w", "60")
    await fabric.ended(await fabric.submit(workflow("double", DOUBLE)))
    await fabric.ended(await fabric.submit(workflow("double", DOUBLE)))
    pair = [await fabric.submit(workflow(n, sleeps(0.3)), namespace="team-b") for n in "ab"]
    for uid in pair:
        await fabric.ended(uid)
    await fabric.ended(await fabric.submit(workflow("broken", BROKEN)))


async def books_written(fabric: Fabric) -> None:
    """Until the metrics show the accounts as they stand."""
    control = fabric.control
    await until(lambda: not machine_of(control).state.attempts)
    book = machine_of(control).state.book
    await until(
        lambda: (
            control.services.metrics.last_accounts.book.receipts_nanousd == book.receipts_nanousd
            and control.services.metrics.last_accounts.book.saved_nanousd == book.saved_nanousd
        )
    )


async def test_executions_payments_sharing_and_failures_are_exposed(fabric: Fabric) -> None:
    await busy_fabric(fabric)
    await books_written(fabric)
    text = await page(fabric)
    book = machine_of(fabric.control).state.book
    paid = total(text, "flowmesh_paid_usd_total")
    assert (
        paid
        == pytest.approx(book.receipts_nanousd / 1e9)
        == pytest.approx(total(text, "flowmesh_receipts_usd_total"))
    )
    assert total(text, "flowmesh_paid_usd_total", tenant="team-b", pool="local", model="none") > 0
    assert total(text, "flowmesh_saved_usd_total", tenant="team-b") > 0
    assert total(text, "flowmesh_saved_joules_total") > 0
    assert total(text, "flowmesh_joules_total", estimated="true") > 0
    assert total(text, "flowmesh_action_cache_hits_total", kind="published") == 2
    assert total(text, "flowmesh_action_cache_hits_total", kind="in-flight") == 1
    assert total(text, "flowmesh_actions_executed_total") == 3
    assert total(text, "flowmesh_dispatches_total", pool="local") == 4
    assert total(text, "flowmesh_attempts_ended_total", outcome="published") == 3
    assert total(text, "flowmesh_attempts_ended_total", outcome="bad-input") == 1
    assert total(text, "flowmesh_steps_failed_total", kind="bad-input") == 1
    assert total(text, "flowmesh_runs_ended_total", phase="Succeeded") == 4
    assert total(text, "flowmesh_runs_ended_total", phase="Failed", reason="bad-input") == 1
    assert total(text, "flowmesh_workers", state="ready") == 1
    assert total(text, "flowmesh_batch_size_count") >= 4
    assert total(text, "flowmesh_wait_seconds_count", pool="local") == 4
    assert total(text, "flowmesh_attempt_seconds_count", pool="local") == 4
    assert total(text, "flowmesh_prediction_error_count", engine="data.sql") == 2
    assert total(text, "flowmesh_store_seconds_count", operation="record.write", outcome="ok") > 0
    assert total(text, "flowmesh_scheduling_cycle_seconds_count") > 0
    busy = total(text, "flowmesh_worker_seconds_total", state="busy")
    assert 0 < busy < total(text, "flowmesh_worker_seconds_total")
    assert total(text, "flowmesh_worker_agent_cpu_seconds_total", pool="local") > 0


async def test_account_counters_continue_under_the_next_leader(fabric: Fabric) -> None:
    await busy_fabric(fabric)
    await books_written(fabric)
    before = counters(await page(fabric))
    await fabric.control.stop()
    await asyncio.to_thread(fabric.close)
    fabric.workers.clear()
    fabric.control = control_plane(fabric.root)
    await fabric.control.start()
    after = counters(await page(fabric))
    kept = {k: v for k, v in before.items() if k[0] in UNFINISHED}
    assert len(kept) > len(UNFINISHED)
    fallen = {k: (v, after.get(k)) for k, v in kept.items() if after.get(k, 0.0) < v}
    assert not fallen
    assert {k[0] for k in kept} == set(UNFINISHED)


async def test_a_pool_without_workers_has_a_backlog_once_it_is_declared(fabric: Fabric) -> None:
    contract = fabric.control.services.catalog.newest("test.sleep")
    assert contract is not None
    shape = WorkerShape(
        name="",
        pool="empty",
        device_class="cpu",
        device_memory_mib=4096,
        host_memory_mib=4096,
        cpus=2,
        price_nanousd_per_hour=10**9,
        engines={contract.name: contract.versions},
    )
    fabric.control.services.signals.declare(lambda: [PoolView("empty", shape, maximum=3)])
    await fabric.submit(workflow("slow", {**sleeps(5, 3), "budgetUsd": "2"}))
    await until(lambda: len(machine_of(fabric.control).state.ready) == 3)
    fabric.control.services.signals.declare(lambda: [PoolView("empty", shape, maximum=3)])
    # A decision may have seen the first of them alone; the next one sees all.
    rejected = "flowmesh_actions_rejected"
    while total(text := await page(fabric), rejected, cause="no-workers") < 3:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.005)
    assert total(text, "flowmesh_backlog_actions", pool="empty") == 3
    assert total(text, "flowmesh_backlog_seconds", pool="empty") > 0
    assert total(text, "flowmesh_workers", pool="empty") == 0
    assert total(text, "flowmesh_actions_ready") == 3
    assert total(text, "flowmesh_budget_left_usd", tenant="team-a") == 2
    assert ("flowmesh_workers", (("pool", "empty"), ("state", "busy"))) in samples(text)


async def test_a_scrape_neither_requests_nor_cancels_a_decision(fabric: Fabric) -> None:
    await fabric.submit(workflow("slow", sleeps(5)))
    control = fabric.control
    await until(lambda: bool(machine_of(control).state.ready))
    for dirty in (True, False):
        control.services.signals.declare(list)  # nothing that was read before is handed out
        machine_of(control).state.dirty = dirty
        list(control.services.metrics.collect())
        assert machine_of(control).state.dirty is dirty


async def test_additional_collectors_are_exposed_too(fabric: Fabric) -> None:
    mine = Gauge("flowmesh_api_watches", "Watches that are open.", registry=CollectorRegistry())
    mine.set(3)
    fabric.control.services.metrics.add(mine)
    assert total(await page(fabric), "flowmesh_api_watches") == 3
