"""What out-of-memory teaches, and how it fades."""

from flowmesh_core.fleet.memory_limits import MemoryLimits
from flowmesh_core.units import Digest

SIGNATURE = Digest("1" * 64)


def test_a_failure_beside_others_halves_the_load_which_recovers_with_success() -> None:
    learned = MemoryLimits()
    fail(learned, reserved=500, device=1000, alone=False)
    fail(learned, reserved=500, device=1000, alone=False)
    assert learned.capacity_factors(SIGNATURE) == {"cpu": 0.25}
    assert learned.more_than_mib(SIGNATURE) == {}
    for _ in range(10):
        learned.succeeded(SIGNATURE, "cpu")
    assert learned.capacity_factors(SIGNATURE) == {}


def test_a_failure_of_few_at_once_leaves_half_of_these_few() -> None:
    """Else three of 64 would run out of memory five times more, each time with a new engine."""
    learned = MemoryLimits()
    at = {"reserved_mib": 500, "device_mib": 1000, "alone": False}
    learned.out_of_memory(SIGNATURE, "cpu", **at, share=3 / 64)
    assert learned.capacity_factors(SIGNATURE) == {"cpu": 1.5 / 64}


def fail(learned: MemoryLimits, *, reserved: int, device: int, alone: bool) -> None:
    learned.out_of_memory(SIGNATURE, "cpu", reserved_mib=reserved, device_mib=device, alone=alone)


def test_a_failure_alone_doubles_the_reservation_up_to_the_whole_device() -> None:
    learned = MemoryLimits()
    fail(learned, reserved=300, device=1000, alone=True)
    assert learned.reserve_mib(SIGNATURE) == 600
    fail(learned, reserved=600, device=1000, alone=True)
    assert learned.reserve_mib(SIGNATURE) == 1000
    assert learned.more_than_mib(SIGNATURE) == {}


def test_a_failure_alone_on_the_whole_device_requires_a_larger_one() -> None:
    learned = MemoryLimits()
    fail(learned, reserved=2000, device=2000, alone=True)
    fail(learned, reserved=1000, device=1000, alone=True)
    assert learned.more_than_mib(SIGNATURE) == {"cpu": 2000}
    assert learned.more_than_mib(Digest("2" * 64)) == {}


def test_a_reservation_that_was_raised_for_one_action_fades_with_the_success_of_others() -> None:
    learned = MemoryLimits()
    fail(learned, reserved=400, device=1000, alone=True)
    for _ in range(200):
        learned.succeeded(SIGNATURE, "cpu")
    assert learned.reserve_mib(SIGNATURE) < 100


def test_a_reservation_does_not_fade_below_what_every_success_needs() -> None:
    learned = MemoryLimits()
    fail(learned, reserved=400, device=1000, alone=True)
    for _ in range(200):
        learned.succeeded(SIGNATURE, "cpu", peak_mib=410)
    assert 410 < learned.reserve_mib(SIGNATURE) < 430
    fail(learned, reserved=600, device=1000, alone=True)
    learned.succeeded(SIGNATURE, "cpu", peak_mib=5000)
    assert learned.reserve_mib(SIGNATURE) == 1000, "nor does a success raise it"
