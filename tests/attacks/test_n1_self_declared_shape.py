"""Attacker: T3. Action: says of itself price 0, 10 TiB, 64 devices, every engine, age 10 years.
Must not happen: it is given more than its pool allows, or bills more; runs use it for free.
"""

import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import Place, end_of, hello_of, noop, place, until
from tests.flowmesh_control.fabric import machine_of

from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.fleet.pool_declaration import PoolDeclaration
from flowmesh_core.protocol.messages import EngineVariant, Welcome

pytestmark = pytest.mark.slow

PRICE = 3_600_000_000  # a dollar and 60 cents an hour: a million nano-dollars a second
YEARS_S = 10 * 365 * 86400.0
LOW = PoolDeclaration(
    price_nanousd_per_hour=PRICE,
    price_estimated=False,
    power_w=10.0,
    idle_w=1.0,
    labels={"tier": "low"},
    zone="",
    allows_user_code=False,
    sandbox_minimum="",
    engines=frozenset({"test.noop"}),
    devices=0,
    device_memory_mib=0,
    host_memory_mib=1024,
    cpus=1,
)
ENGINES = {c.name: c.versions for c in load_catalog()}
LIE: dict[str, Any] = {
    "price_nanousd_per_hour": 0,
    "device_memory_mib": 10 << 20,
    "host_memory_mib": 10 << 20,
    "devices": 64,
    "cpus": 1024,
    "device_class": "nvidia-h200",
    "labels": {"tier": "high"},
    "allows_user_code": True,
    "engines": ENGINES,
    "variants": (EngineVariant("llm.generate", "vllm", ("auto",)),),
}


def step(uses: str, **more: Any) -> dict[str, Any]:
    values = {"test.sleep": {"seconds": 0.01}, "test.noop": {"value": str(more)}}
    return {"steps": [{"name": "one", "uses": uses, "with": values[uses], **more}]}


TOO_MUCH = {
    "an engine that its pool lacks": step("test.sleep"),
    "more memory than its pool has": step("test.noop", resources={"memory": "8Gi"}),
    "a label that its pool lacks": step("test.noop", resources={"labels": {"tier": "high"}}),
}


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        shape = hello_of("any", "low").shape
        pools = [PoolView("low", shape, declaration=LOW)]
        found.control.services.signals.declare(lambda: pools)
        yield found


async def test_a_worker_gets_and_bills_no_more_than_its_pool_allows(there: Place) -> None:
    joined_s = time.time()
    liar = await there.join("liar", "low", shape=LIE, age_s=YEARS_S, started_s=1.0)
    assert isinstance(liar.answer, Welcome)
    for number, spec in enumerate(TOO_MUCH.values()):
        await there.submit(f"too-much-{number}", spec)
    uid = await there.submit("fits", noop())
    [given] = await liar.given()
    assert given.engine == "test.noop"
    assert given.memory_mib <= LOW.host_memory_mib
    state = machine_of(there.control).state
    worker = state.workers["low-liar"]
    assert (
        msgspec.structs.asdict(worker.shape).items()
        >= {
            "price_nanousd_per_hour": PRICE,
            "device_class": "cpu",
            "devices": 1,
            "device_memory_mib": LOW.host_memory_mib,
            "host_memory_mib": LOW.host_memory_mib,
            "cpus": 1,
            "labels": {"tier": "low"},
            "allows_user_code": False,
            "engines": {"test.noop": ENGINES["test.noop"]},
            "variants": (),
        }.items()
    )
    assert worker.started_s >= joined_s
    await liar.sync(ended=(end_of(given.attempt_id, given.action_id),))
    assert (await there.ended(uid)).phase == "Succeeded"
    assert len(liar.assigned) == 1
    lived_s = time.time() - joined_s
    assert 0 < state.book.bill_nanousd <= PRICE * lived_s / 3600 + 1

    # Where nothing is declared, as on a laptop, what an honest worker says of itself counts.
    honest = await there.join("honest", shape={**LIE, "price_nanousd_per_hour": PRICE})
    await until(lambda: len(honest.assigned) == len(TOO_MUCH))
