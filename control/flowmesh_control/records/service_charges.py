"""What services paid, by day: a record for each day that is over, and the days in the accounts.

Bills read it. The accounts have the latest day, and every earlier one until its record is written:
so no amount is lost or counted twice, whenever a leader ends.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from flowmesh_control.records.keys import SERVICE_CHARGES, parse_service_day, service_day_key
from flowmesh_control.records.known_keys import known_keys
from flowmesh_control.records.overwrite import overwrite
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.accounting.charges import Days
from flowmesh_core.accounting.service_charges import ServiceCharges, ServiceDay, days_over
from flowmesh_core.errors import DamagedRecordError
from flowmesh_store.ports import RecordStore

if TYPE_CHECKING:
    from datetime import date

_decoder = msgspec.json.Decoder(list[ServiceDay])


class ServiceChargeRecords:
    """Writes one epoch's records of days, and reads all of them."""

    def __init__(self, records: RecordStore, latest: ServiceCharges, *, epoch: int) -> None:
        """Keeps the records, and the charges of days that have none."""
        self._records = records
        self._latest = latest
        self._epoch = epoch

    async def archive(self, rows: Iterable[ServiceDay]) -> None:
        """Writes a record for each day that is over, and forgets the day.

        Args:
            rows: of the accounts that were written last.

        Raises:
            StoreUnavailableError, StoreFullError: the next call writes the rest.
        """
        for day, of_day in days_over(rows).items():
            key = service_day_key(day, self._epoch)
            await overwrite(self._records, key, msgspec.json.encode(of_day))
            self._latest.forget(day)

    async def read(self, days: Days) -> tuple[list[ServiceDay], list[str]]:
        """Returns what services paid on some days, and the keys of records that are damaged."""
        latest = self._latest.rows()
        keys: dict[date, str] = {}
        async for key, day in known_keys(self._records, SERVICE_CHARGES, parse_service_day):
            keys[day] = key  # of the last epoch that wrote it
        for row in latest:
            keys.pop(row.day, None)
        found = [row for row in latest if days.has(row.day)]
        damaged: list[str] = []
        for day, key in keys.items():
            record = await self._records.read(key) if days.has(day) else None
            if record is None:
                continue
            try:
                rows = decode_record(_decoder, key, record)
            except DamagedRecordError:
                damaged.append(key)
            else:
                found += rows
        return found, damaged
