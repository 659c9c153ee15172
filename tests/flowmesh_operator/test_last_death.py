"""A replica records what its last process died of before it asks for the lease."""

from pathlib import Path

import pytest

from flowmesh_control.loop.current_event import CurrentEventMarker, read_marker
from flowmesh_control.records.keys import SUSPECT_RUNS
from flowmesh_control.records.suspects import read_suspects
from flowmesh_core.errors import StoreUnavailableError
from flowmesh_core.machine.events import CancelRequested
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.seals import Seals
from flowmesh_operator.leadership import leader
from flowmesh_operator.settings import OperatorSettings
from flowmesh_store.sealed_records import SealedRecords
from flowmesh_store.store import Store

KEYS = KeyRing.of(bytes(32))


def sealed(store: Store) -> SealedRecords:
    return SealedRecords(store.records, Seals(KEYS), refused=lambda _: None)


@pytest.fixture
def settings(tmp_path: Path) -> OperatorSettings:
    """Of a pod whose last process died while it worked on a run."""
    CurrentEventMarker.in_folder(tmp_path, epoch=3).begin(CancelRequested("weekly-1"))
    return OperatorSettings(store=str(tmp_path / "store"), key_ring=KEYS, state_folder=tmp_path)


async def test_a_standby_records_the_last_death(settings: OperatorSettings) -> None:
    store = await leader._open_store(settings)
    assert await read_suspects(sealed(store), SUSPECT_RUNS) == {"weekly-1": 1}
    store.close()


async def test_the_last_death_stays_to_be_recorded_while_the_store_is_unavailable(
    settings: OperatorSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailableError("no answer", where="store")

    monkeypatch.setattr(leader, "record_last_death", away)
    store = await leader._open_store(settings)
    assert settings.state_folder is not None
    assert read_marker(settings.state_folder) is not None
    store.close()
