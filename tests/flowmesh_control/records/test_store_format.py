"""A store says how its content is named and laid out; one of another release is refused."""

from pathlib import Path

import pytest
from tests.flowmesh_control.fabric import control_plane

from flowmesh_control.records.epochs import begin_epoch, last_epoch
from flowmesh_control.records.keys import STORE_FORMAT
from flowmesh_control.records.store_format import LAYOUT, begin_format, require_format
from flowmesh_core.errors import DamagedRecordError, StoreError
from flowmesh_core.identity import SCHEME
from flowmesh_store.store import open_store


async def test_a_new_store_is_marked_once_and_can_be_opened_again() -> None:
    records = open_store("memory:").records
    assert not await require_format(records)
    for _ in range(2):
        await begin_format(records)
        await begin_epoch(records, owner="me", now_s=1.0)
    assert await require_format(records)
    found = await records.read(STORE_FORMAT)
    assert found is not None
    assert found.data == b'{"identityScheme":%d,"layout":%d}' % (SCHEME, LAYOUT)


@pytest.mark.parametrize("marked", [b'{"identityScheme":1}', b'{"identityScheme":3}', None])
async def test_a_store_of_another_scheme_is_refused_with_the_remedy(marked: bytes | None) -> None:
    """Releases with scheme 1 wrote leaderships and no format."""
    records = open_store("memory:").records
    await begin_epoch(records, owner="me", now_s=1.0)
    if marked is not None:
        await records.write(STORE_FORMAT, marked)
    for check in (require_format, begin_format):
        with pytest.raises(StoreError, match=r"is named by identity scheme [13]; this") as refused:
            await check(records)
        assert "start with an empty folder or bucket" in refused.value.remedy


@pytest.mark.parametrize("layout", [b"", b',"layout":1', b',"layout":3'])
async def test_a_store_of_another_layout_is_refused_with_the_remedy(layout: bytes) -> None:
    """Layout 1 had all blobs in one space, and said nothing of it."""
    records = open_store("memory:").records
    await records.write(STORE_FORMAT, b'{"identityScheme":%d%b}' % (SCHEME, layout))
    for check in (require_format, begin_format):
        with pytest.raises(StoreError, match=r"its blobs have layout [13]; this") as refused:
            await check(records)
        assert "start with an empty folder or bucket" in refused.value.remedy


async def test_a_damaged_format_is_not_taken_for_another_scheme() -> None:
    records = open_store("memory:").records
    await records.write(STORE_FORMAT, b'{"identitySch')
    with pytest.raises(DamagedRecordError, match="cannot be read"):
        await begin_format(records)


async def test_a_control_plane_neither_leads_nor_reads_a_store_of_scheme_1(tmp_path: Path) -> None:
    control = control_plane(tmp_path)
    records = control._bare_store.records
    await begin_epoch(records, owner="an older release", now_s=1.0)
    with pytest.raises(StoreError, match="identity scheme 1"):
        await control.start()
    with pytest.raises(StoreError, match="identity scheme 1"):
        await control.start_reading(StoreError("the disk is read-only"))
    assert await last_epoch(records) == 1
    assert await records.read(STORE_FORMAT) is None
    await control.stop()
