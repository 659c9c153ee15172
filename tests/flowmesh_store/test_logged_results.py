"""A directory's action results, which lie in a log, through the store's own ports."""

from pathlib import Path

import pytest

from flowmesh_core.errors import StoreError
from flowmesh_store.filesystem.record_log import QUICK_BYTES, RecordLog
from flowmesh_store.filesystem.root import StoreRoot
from flowmesh_store.store import open_store


async def test_records_that_another_process_compacted_are_read_again(tmp_path: Path) -> None:
    records = open_store(tmp_path).records
    large = b"x" * QUICK_BYTES
    for name in "abc":
        await records.write(f"actions/s/{name}", large)
    RecordLog(StoreRoot(tmp_path), "actions").compact()
    record = await records.read("actions/s/b")
    assert record is not None
    assert record.data == large
    await records.write("actions/s/b", b"small", if_match=record.etag)
    record = await records.read("actions/s/b")
    assert record is not None
    assert record.data == b"small"


async def test_other_records_do_not_need_the_log(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await store.records.write("runs/u/spec", b"1")
    (tmp_path / "actions" / "log").mkdir(parents=True)
    assert [key async for key in store.records.keys("runs/")] == ["runs/u/spec"]
    with pytest.raises(StoreError):
        await anext(store.records.keys("actions/"))
    with pytest.raises(StoreError):
        await store.records.read("actions/s/a")


async def test_folders_of_results_are_scopes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for key in ("actions/b/1", "actions/a/1", "actions/a/2", "actions/a/2/3"):
        await store.records.write(key, b"x")
    assert [name async for name in store.records.folders("actions/")] == ["a", "b"]
    assert [name async for name in store.records.folders("actions/a/")] == ["2"]


@pytest.mark.parametrize(
    ("key", "data", "said"),
    [
        ("actions/s/a", b"\xff", "not text in UTF-8"),
        ("/".join(["actions", *["k" * 200] * 400]), b"x", "too long"),
        ("actions/s/a", b"x" * ((64 << 20) + 1), "too large"),
    ],
)
async def test_invalid_keys_and_records_are_refused_by_the_log(
    tmp_path: Path, key: str, data: bytes, said: str
) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StoreError, match=said):
        await store.records.write(key, data)
    assert [k async for k in store.records.keys("")] == []


async def test_a_record_with_the_name_of_the_folder_is_reported(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await store.records.write("actions", b"1")
    with pytest.raises(StoreError, match="cannot be the beginning of another key"):
        await store.records.write("actions/s/a", b"x")
