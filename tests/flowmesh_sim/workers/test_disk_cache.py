"""A simulated worker's disk: what leaves it, and which models the agent hears of."""

import pytest

from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.units import Digest
from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.models.download_rates import DownloadRates
from flowmesh_sim.models.store import SimStore
from flowmesh_sim.workers.disk_cache import DiskCache

BUDGET = 100


class Disk:
    """A disk with room for two models, and what it told of them."""

    def __init__(self) -> None:
        self.store = SimStore()
        self.local: list[frozenset[Digest]] = []
        self.used: set[Digest] = set()
        self.engine = Environment()
        self.cache = DiskCache(
            self.engine,
            self.store,
            budget_bytes=BUDGET,
            downloads=DownloadRates(1.0, 1.0),
            request_s=0.0,
            in_use=lambda: self.used,
            weights_changed=self.local.append,
        )

    def model(self, name: str) -> Digest:
        return self.store.contents.model(name, BUDGET // 2).digest

    def add(self, digest: Digest) -> Digest:
        self.cache.add(digest, BUDGET // 2)
        return digest


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_a_new_model_is_reported_once(disk: Disk) -> None:
    model = disk.add(disk.model("a"))
    disk.add(model)
    assert disk.local == [frozenset({model})]


def test_new_rows_are_not_reported(disk: Disk) -> None:
    disk.add(digest_bytes(b"rows"))
    assert not disk.local


def test_the_model_used_longest_ago_is_evicted_and_the_eviction_is_reported(disk: Disk) -> None:
    disk.add(disk.model("a"))
    second = disk.add(disk.model("b"))
    disk.add(digest_bytes(b"rows"))
    assert disk.local[-1] == {second}
    assert list(disk.cache.weights) == [second]


def test_a_model_in_use_stays(disk: Disk) -> None:
    first = disk.add(disk.model("a"))
    disk.used = {first}
    disk.add(disk.model("b"))
    third = disk.add(disk.model("c"))
    assert set(disk.cache.sizes) == {first, third}


def test_a_model_that_another_worker_left_on_the_disk_is_reported(disk: Disk) -> None:
    model = disk.model("a")
    disk.cache.restore({model: 50, digest_bytes(b"rows"): 10})
    assert disk.local == [frozenset({model})]


def test_models_that_come_at_the_same_time_divide_the_network(disk: Disk) -> None:
    ended: list[float] = []
    for name in ("a", "b"):
        model = disk.model(name)
        disk.cache.fetch(model, (), BUDGET // 2, lambda _: ended.append(disk.engine.now_s))
    disk.engine.run(until_s=1000.0, over=lambda: False)
    # A byte a second, of which each has half.
    assert ended == pytest.approx([BUDGET, BUDGET])
    assert disk.cache.fetches == [pytest.approx((0.0, BUDGET))] * 2
