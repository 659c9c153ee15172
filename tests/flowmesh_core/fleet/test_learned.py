"""What out-of-memory teaches, and how it fades."""

from flowmesh_core.fleet.learned import LearnedMemory
from flowmesh_core.units import Digest

SIGNATURE = Digest("1" * 64)


def test_in_company_the_load_is_halved_and_comes_back_with_success() -> None:
    learned = LearnedMemory()
    learned.out_of_memory(SIGNATURE, "cpu", 1000, alone=False)
    learned.out_of_memory(SIGNATURE, "cpu", 1000, alone=False)
    assert learned.capacity_factors(SIGNATURE) == {"cpu": 0.25}
    assert learned.more_than_mib(SIGNATURE) == {}
    for _ in range(10):
        learned.succeeded(SIGNATURE, "cpu")
    assert learned.capacity_factors(SIGNATURE) == {}


def test_alone_it_asks_for_more_memory_than_the_largest_it_failed_on() -> None:
    learned = LearnedMemory()
    learned.out_of_memory(SIGNATURE, "cpu", 2000, alone=True)
    learned.out_of_memory(SIGNATURE, "cpu", 1000, alone=True)
    assert learned.more_than_mib(SIGNATURE) == {"cpu": 2000}
    assert learned.more_than_mib(Digest("2" * 64)) == {}
