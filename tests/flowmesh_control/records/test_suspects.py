"""Deaths of control planes are counted in the store, one an epoch."""

from pathlib import Path

from flowmesh_control.loop.current_event import CurrentEventMarker, read_marker
from flowmesh_control.records.keys import SUSPECT_RUNS, SUSPECT_WORKERS
from flowmesh_control.records.suspects import forget_deaths, read_suspects, record_last_death
from flowmesh_core.machine.events import CancelRequested, Event, TimeAdvanced, WorkerLost
from flowmesh_store.ports import RecordStore
from flowmesh_store.store import Store

A_RUN, A_WORKER = CancelRequested("weekly-1"), WorkerLost("w1")


async def died(records: RecordStore, folder: Path, epoch: int, event: Event) -> None:
    """Records the death of a leader that applied an event."""
    CurrentEventMarker.in_folder(folder, epoch=epoch).begin(event)
    await record_last_death(records, folder)
    assert read_marker(folder) is None


async def test_deaths_of_several_epochs_and_folders_add_up(store: Store, tmp_path: Path) -> None:
    records = store.records
    (tmp_path / "other-pod").mkdir()
    await died(records, tmp_path, 1, A_RUN)
    await died(records, tmp_path / "other-pod", 2, A_RUN)
    await died(records, tmp_path, 3, A_WORKER)
    assert await read_suspects(records, SUSPECT_RUNS) == {"weekly-1": 2}
    assert await read_suspects(records, SUSPECT_WORKERS) == {"w1": 1}


async def test_a_death_counts_once(store: Store, tmp_path: Path) -> None:
    """A start may die after it has recorded the death and before it has cleared the marker."""
    for _ in range(3):
        await died(store.records, tmp_path, 1, A_RUN)
    assert await read_suspects(store.records, SUSPECT_RUNS) == {"weekly-1": 1}


async def test_a_death_without_a_valid_run_or_worker_is_not_counted(
    store: Store, tmp_path: Path
) -> None:
    await died(store.records, tmp_path, 1, TimeAdvanced())
    await died(store.records, tmp_path, 2, WorkerLost("../../x"))
    assert await read_suspects(store.records, SUSPECT_RUNS) == {}
    assert await read_suspects(store.records, SUSPECT_WORKERS) == {}


async def test_a_damaged_record_does_not_prevent_a_start(store: Store, tmp_path: Path) -> None:
    await store.records.write(f"{SUSPECT_RUNS}weekly-1", b"{")
    assert await read_suspects(store.records, SUSPECT_RUNS) == {}
    await died(store.records, tmp_path, 1, A_RUN)
    assert await read_suspects(store.records, SUSPECT_RUNS) == {"weekly-1": 1}


async def test_a_resumed_run_starts_again_at_zero_deaths(store: Store, tmp_path: Path) -> None:
    await died(store.records, tmp_path, 1, A_RUN)
    await forget_deaths(store.records, "weekly-1")
    assert await read_suspects(store.records, SUSPECT_RUNS) == {"weekly-1": 0}
    await died(store.records, tmp_path, 2, A_RUN)
    assert await read_suspects(store.records, SUSPECT_RUNS) == {"weekly-1": 1}
