"""Attacker: T3. Action: 200,000 metric names in one message, and figures that are no numbers.
Must not happen: the control plane keeps them, or grows by over 128 MiB; a total is spoiled.
"""

import math
from collections.abc import AsyncIterator

import pytest
from tests.attacks.by_hand import Place, place
from tests.attacks.growth import bounded_growth
from tests.flowmesh_control.fabric import machine_of

pytestmark = pytest.mark.slow


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def test_metric_names_are_bounded_and_their_values_are_numbers(there: Place) -> None:
    worker = await there.join("w")
    await there.heard(lambda: machine_of(there.control).state.workers)
    many = {f"name-{n}": 1.0 for n in range(200_000)}
    telemetry = there.control.services.gateway._telemetry
    with bounded_growth():
        await worker.sync(metrics=many)
        for value in (math.nan, math.inf, -math.inf, -1.0, 1e300):
            await worker.sync(metrics={"stored_bytes": value})
        await there.heard(lambda: there.dropped == {"malformed": 6})
    assert telemetry.totals == {}  # type: ignore[attr-defined]
    assert not worker.closed
    await worker.sync(metrics={"stored_bytes": 5.0, "uptime_s": 1.0})
    await there.heard(lambda: telemetry.totals["stored_bytes"])  # type: ignore[attr-defined]
    assert telemetry.totals == {"stored_bytes": {"good": 5.0}, "agent_cpu_s": {"good": 0.0}}  # type: ignore[attr-defined]
