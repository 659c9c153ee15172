"""What engine instances reserve is never more than there is."""

from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.worker_agent.memory_reservations import MemoryBudget, Reservation


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 3)), max_size=30),
    st.integers(0, 3),
)
def test_a_budget_never_reserves_more_than_is_available(
    wanted: list[tuple[int, int]], devices: int
) -> None:
    budget = MemoryBudget(1000, devices, 800)
    reserved: list[Reservation] = []
    for memory, count in wanted:
        got = budget.reserve(memory, count)
        if got is None:
            if reserved:
                budget.release(reserved.pop(0))
            continue
        reserved.append(got)
        assert len(got.devices) == count
        assert sum(r.memory_mib for r in reserved if not r.devices) <= 1000
        for index in range(devices):
            assert sum(r.memory_mib for r in reserved if index in r.devices) <= 800
    for reservation in reserved:
        budget.release(reservation)
    assert budget.reserve(1000, 0) is not None
