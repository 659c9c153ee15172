"""What a store in a directory has published, for tests that look behind the service's back."""

from pathlib import Path

from flowmesh_store.filesystem.record_log import RecordLog
from flowmesh_store.filesystem.root import StoreRoot
from flowmesh_store.keys import ACTIONS
from flowmesh_store.ports import Record


def published(directory: Path) -> dict[str, Record]:
    """Every action result by ``<scope>/<action_id>``; the etag tells when it was written.

    The data are the result as JSON, without the line of the seal below it.
    """
    if not directory.exists():
        return {}
    log = RecordLog(StoreRoot(directory), ACTIONS)
    keys = [stored.key for stored in log.aged(f"{ACTIONS}/")]
    records = ((key, log.read(key)) for key in keys)
    return {
        key.removeprefix(f"{ACTIONS}/"): Record(found.data.splitlines()[0], found.etag)
        for key, found in records
        if found
    }
