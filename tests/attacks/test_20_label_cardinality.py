"""Attacker: T3. Action: workers, device classes, zones, engines, states of lanes and reasons under
ever new names.
Must not happen: a label of a metric takes their values, or memory grows by over 128 MiB.
"""

from collections.abc import AsyncIterator

import pytest
from tests.attacks.by_hand import Place, place, until
from tests.attacks.growth import bounded_growth
from tests.flowmesh_control.fabric import machine_of

from flowmesh_core.protocol.messages import EngineInstanceState
from flowmesh_core.units import Digest

pytestmark = pytest.mark.slow
SIGNATURE = Digest("a" * 64)


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def series(there: Place) -> set[str]:
    text = (await there.get("/metrics")).decode()
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


async def test_names_that_workers_report_never_become_metric_labels(there: Place) -> None:
    def lane(state: str) -> EngineInstanceState:
        return EngineInstanceState(SIGNATURE, "test.noop", state, 1, 64)

    state = machine_of(there.control).state
    first = await there.join("first", instances=(lane("ready"),))
    await there.heard(lambda: len(state.workers) == 1)
    await until(lambda: state.figures.worker_s)  # counted from the first tick on
    before = await series(there)
    assert 'flowmesh_engine_instances{pool="good",state="ready"}' in before
    with bounded_growth():
        for n in range(30):
            shape = {
                "device_class": f"device-{n}",
                "zone": f"zone-{n}",
                "node": f"node-{n}",
                "labels": {f"label-{n}": f"value-{n}"},
                "engines": {f"engine-{n}": (1, 1)},
                "price_nanousd_per_hour": 1_000_000 + n,
            }
            other = await there.join(f"w{n}", shape=shape)
            await other.sync(instances=(lane(f"state-{n}"),))
        await there.heard(lambda: there.dropped == {"malformed": 30})
    assert len(state.workers) == 31
    assert await series(there) == before
    assert not first.closed
