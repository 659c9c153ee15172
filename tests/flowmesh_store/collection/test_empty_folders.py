"""A directory has no folder for a run whose records were deleted."""

import asyncio
from pathlib import Path

from flowmesh_store.store import open_store


async def test_deleting_the_last_record_of_a_folder_removes_it_and_the_folders_above(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    for key in ("runs/a/ledger/1-1", "runs/a/spec", "runs/b/spec"):
        await store.records.write(key, b"{}")
    await store.sweepable_records.delete("runs/a/ledger/1-1", older_than_s=0.0)
    assert sorted(p.name for p in (tmp_path / "runs" / "a").iterdir()) == ["spec"]
    await store.sweepable_records.delete("runs/a/spec", older_than_s=0.0)
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["b"]
    await store.sweepable_records.delete("runs/b/spec", older_than_s=0.0)
    assert (tmp_path / "runs").is_dir(), "the topmost folder stays"


async def test_a_record_can_be_created_in_a_folder_that_is_being_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    async def write_and_delete(number: int) -> bool:
        key = f"runs/a/ledger/1-{number}"
        await store.records.write(key, b"x" * 100_000)  # in a thread, as large records are
        return await store.sweepable_records.delete(key, older_than_s=0.0)

    assert all(await asyncio.gather(*map(write_and_delete, range(200))))
    assert list((tmp_path / "runs").iterdir()) == []
