"""Seals of records: a MAC at the end of what the control plane writes to the store.

A sealed record is its content, a newline and ``{"seal":"<key id><MAC>"}``, so that records stay
lines of JSON that any tool reads. The MAC covers the record's key in the store and the content: a
record that is moved to another run, scope or action is not valid there. Whoever can write to the
bucket but has no master key cannot write a record that is believed. A seal does not show that a
record was deleted, or replaced by an earlier one of the same key.
"""

import hmac
from collections.abc import Collection
from typing import Protocol

from blake3 import blake3

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.sharing.key_ring import KEY_ID_DIGITS, DerivedKeys, KeyRing

_CONTEXT = "flowmesh.dev 2 records"
_MAC_BYTES = 16
_BEGIN = b'\n{"seal":"'
_END = b'"}'
_MAC_AT = len(_BEGIN) + KEY_ID_DIGITS
SEAL_BYTES = _MAC_AT + 2 * _MAC_BYTES + len(_END)
"""How much longer a record is with its seal."""


class SealError(FlowMeshError):
    """A record that the control plane did not write, or that was changed since.

    Attributes:
        kind: ``unsealed``, ``wrong`` or ``retired``.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class UnknownKeyError(FlowMeshError):
    """A record sealed with a key that the key ring does not have.

    Attributes:
        key_id: the missing key.
    """

    def __init__(self, key: str, key_id: str) -> None:
        super().__init__(
            f"the record is sealed with master key {key_id}, which the key ring does not have",
            where=key,
            remedy=f"restore key {key_id} in the key ring and start again",
        )
        self.key_id = key_id


class RecordSeals(Protocol):
    """Seals records and opens sealed ones."""

    def seal(self, key: str, content: bytes) -> bytes:
        """Returns the sealed record."""
        ...

    def open(self, key: str, record: bytes) -> bytes:
        """Returns the content of a sealed record.

        Raises:
            SealError: it has no seal, a wrong one, or one of a retired key.
            UnknownKeyError: it is sealed with a key that is not there.
        """
        ...


class Seals:
    """The seals of one installation."""

    def __init__(self, ring: KeyRing, *, retired: Collection[str] = ()) -> None:
        """Derives the keys.

        Args:
            ring: its newest key seals, all of its keys open.
            retired: ids of former keys; their records count as not sealed.
        """
        self._keys: DerivedKeys = ring.derive(_CONTEXT)
        self._retired = frozenset(retired) - self._keys.by_id.keys()
        self._newest = self._keys.newest
        self._begin = _BEGIN + self._keys.newest_id.encode()

    def seal(self, key: str, content: bytes) -> bytes:
        """As :meth:`RecordSeals.seal`."""
        return b"".join((content, self._begin, _mac(self._newest, key, content), _END))

    def open(self, key: str, record: bytes) -> bytes:
        """As :meth:`RecordSeals.open`."""
        key_id = seal_key_id(record)
        if key_id is None:
            raise SealError("unsealed", "it has no seal")
        secret = self._keys.by_id.get(key_id)
        if secret is None:
            if key_id in self._retired:
                raise SealError("retired", f"it is sealed with the retired master key {key_id}")
            raise UnknownKeyError(key, key_id)
        content = record[:-SEAL_BYTES]
        if not hmac.compare_digest(_mac(secret, key, content), record[_MAC_AT - SEAL_BYTES : -2]):
            raise SealError("wrong", "its seal is not valid")
        return content


class UncheckedSeals:
    """Reads records without the keys; for reading a folder whose master key is unreadable."""

    def seal(self, key: str, content: bytes) -> bytes:
        """Refuses: records are written by those who have the keys.

        Raises:
            FlowMeshError: always.
        """
        raise FlowMeshError("no master key to seal with", where=key, remedy="use the owner's key")

    def open(self, key: str, record: bytes) -> bytes:
        """As :meth:`RecordSeals.open`, without checking the seal."""
        return record if seal_key_id(record) is None else record[:-SEAL_BYTES]


def seal_key_id(record: bytes) -> str | None:
    """Returns the id of the key with which a record says that it is sealed; None if it has none."""
    start = len(record) - SEAL_BYTES
    if start < 0 or not record.startswith(_BEGIN, start) or not record.endswith(_END):
        return None
    return record[start + len(_BEGIN) : start + _MAC_AT].decode("ascii", "replace")


def _mac(secret: bytes, key: str, content: bytes) -> bytes:
    covered = b"".join((key.encode(), b"\0", content))
    return blake3(covered, key=secret).hexdigest(length=_MAC_BYTES).encode()
