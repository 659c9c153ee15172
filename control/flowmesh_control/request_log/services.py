"""The parts of a leader's request log as one value; made by the control plane at its start."""

from dataclasses import dataclass
from typing import Self

from flowmesh_control.loop.clock import Clock
from flowmesh_control.loop.store_health import StoreHealth
from flowmesh_control.request_log.chain import ChainWriter
from flowmesh_control.request_log.public_keys import PublicKeys
from flowmesh_control.request_log.reading import RequestLogReader
from flowmesh_control.request_log.request_log import RequestLog
from flowmesh_control.request_log.signatures import Signer
from flowmesh_control.settings import ControlSettings
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.ports import Records


@dataclass(frozen=True, slots=True)
class RequestLogServices:
    """Gathers and reads entries.

    Attributes:
        records: of the store, without the check of seals.
        signer: signs segments.
        health: where errors of its writes are recorded, with those of other writes.
    """

    log: RequestLog
    reader: RequestLogReader
    records: Records
    signer: Signer
    health: StoreHealth

    @classmethod
    def of(
        cls,
        records: Records,
        sealed: Records,
        ring: KeyRing,
        settings: ControlSettings,
        *,
        epoch: int,
        clock: Clock,
        may_write: bool,
    ) -> Self:
        """Makes the parts; nothing is read or written yet.

        Args:
            records: of the store, without the check of seals.
            sealed: the same, with the check of seals.
            ring: the master keys.
            settings: of the control plane.
            epoch: of this leader.
            clock: Unix time in seconds.
            may_write: whether the store can be written.
        """
        health, signer = StoreHealth(), Signer(ring)
        keys = PublicKeys(sealed, signer)
        chain = ChainWriter(records, signer, keys, epoch=epoch, clock=clock)
        log = RequestLog(
            chain if may_write else None,
            clock=clock,
            flush_s=settings.flush_s,
            failed=health.record_failure,
            enabled=settings.request_log,
        )
        return cls(
            log,
            RequestLogReader(records, keys, log),
            records,
            signer,
            health,
        )
