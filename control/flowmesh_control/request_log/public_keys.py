"""``keys/public``: the public keys that have signed anything, so that signatures outlive keys.

A master key that is retired takes its private key with it; what it signed is verified with the
public key that this record keeps. The record is sealed, since an added key could sign.
"""

import msgspec

from flowmesh_api.v1.keys import PublicKey
from flowmesh_control.records.keys import PUBLIC_KEYS
from flowmesh_control.request_log.signatures import Signer
from flowmesh_core.decoding import decode
from flowmesh_core.errors import ConditionFailedError
from flowmesh_store.ports import Record, RecordStore

_ROUNDS = 8


class PublicKeys:
    """Reads and adds to the public keys of a store."""

    def __init__(self, records: RecordStore, signer: Signer) -> None:
        """Keeps the arguments.

        Args:
            records: of the store, with the check of seals.
            signer: of this control plane.
        """
        self._records = records
        self._signer = signer

    async def all(self) -> tuple[PublicKey, ...]:
        """Returns the keys of the ring, the newest first, and the former ones."""
        ours = self._signer.public_keys()
        former = _decoded(await self._records.read(PUBLIC_KEYS))
        return (*ours, *(key for key in former if key not in ours))

    async def remember(self) -> None:
        """Adds the keys of the ring.

        Raises:
            StoreError: it could not be written.
        """
        for _ in range(_ROUNDS):
            record = await self._records.read(PUBLIC_KEYS)
            found = _decoded(record)
            wanted = (*found, *(k for k in self._signer.public_keys() if k not in found))
            if wanted == found:
                return
            etag = None if record is None else record.etag
            try:
                await self._records.write(PUBLIC_KEYS, msgspec.json.encode(wanted), if_match=etag)
            except ConditionFailedError:
                continue
            return
        raise ConditionFailedError("it changes all the time", where=PUBLIC_KEYS)


def _decoded(record: Record | None) -> tuple[PublicKey, ...]:
    """Returns the keys of the record; none where it is not believed."""
    if record is None or record.damage:
        return ()
    try:
        return decode(_decoder, record.data)
    except msgspec.DecodeError:
        return ()


_decoder = msgspec.json.Decoder(tuple[PublicKey, ...])
