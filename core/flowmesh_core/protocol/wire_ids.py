"""Attempt ids as a worker sees them: the machine's id, a dot, and a MAC.

The machine's ids are public: an action id is a hash of the action, followed by a count. The MAC
binds an id to the worker and the pool that it was assigned to, so that no other worker can report
the attempt's end, claim to run it, or store a checkpoint of it. The gateway adds the MAC to what it
sends and removes it from what it receives; nothing behind the gateway sees it. The key is derived
from the master key, so every leader verifies the ids of its predecessors (ADR 25).
"""

import hmac

import msgspec
from blake3 import blake3

MAC_BYTES = 16
_CONTEXT = "flowmesh.dev 1 attempt ids"
_encoder = msgspec.msgpack.Encoder()


def attempt_key(master_key: bytes) -> bytes:
    """Returns the key of the MACs, of 32 bytes, which is derived from the master key."""
    return blake3(master_key, derive_key_context=_CONTEXT).digest()


def without_mac(wire_id: str) -> str:
    """Returns the machine's id, unverified, so that a worker's log has the control plane's ids.

    An id without a MAC is returned as it is.
    """
    scope_and_action, slash, number = wire_id.rpartition("/")
    return f"{scope_and_action}{slash}{number.partition('.')[0]}"


class WireIds:
    """Turns the machine's attempt ids into those of one worker, and back.

    It remembers the ids that were sent until :meth:`forget`, so that most ids that come back need
    no second MAC.
    """

    __slots__ = ("_bare", "_key", "_pool", "_wire", "_worker")

    def __init__(self, key: bytes, *, worker: str, pool: str) -> None:
        """Makes the ids of one worker.

        Args:
            key: as :func:`attempt_key` returns it.
            worker: the worker's name.
            pool: the pool that the worker's token is for.
        """
        self._key = key
        self._worker = worker
        self._pool = pool
        self._wire: dict[str, str] = {}
        self._bare: dict[str, str] = {}

    def wire(self, attempt_id: str) -> str:
        """Returns the id to send to the worker."""
        known = self._wire.get(attempt_id)
        if known is None:
            known = self._wire[attempt_id] = f"{attempt_id}.{self._mac(attempt_id)}"
            self._bare[known] = attempt_id
        return known

    def bare(self, wire_id: str) -> str | None:
        """Returns the machine's id, or None where this worker was never sent this one."""
        known = self._bare.get(wire_id)
        if known is not None:
            return known
        attempt_id, _, mac = wire_id.rpartition(".")
        if not mac.isascii() or not hmac.compare_digest(mac, self._mac(attempt_id)):
            return None
        return attempt_id

    def forget(self, attempt_id: str) -> str:
        """Returns the id to send to the worker for the last time, and forgets it."""
        known = self._wire.pop(attempt_id, None)
        if known is None:
            return f"{attempt_id}.{self._mac(attempt_id)}"
        del self._bare[known]
        return known

    def _mac(self, attempt_id: str) -> str:
        named = _encoder.encode((attempt_id, self._worker, self._pool))
        return blake3(named, key=self._key).hexdigest(length=MAC_BYTES)
