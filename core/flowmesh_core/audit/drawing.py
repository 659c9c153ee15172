"""Draws the results that are made again on another worker, so that nothing can foresee them.

A result is drawn by its action id and a key of the control plane. A worker knows the id but not the
key, so it cannot lie where it is not compared; and an action that is drawn stays drawn, so asking
for it again shows nothing.
"""

from blake3 import blake3

from flowmesh_core.sharing.key_ring import KeyRing

_CONTEXT = "flowmesh.dev 2 samples"
_BYTES = 8


class SampleDraw:
    """Says which actions are drawn; constant until the newest master key changes."""

    def __init__(self, ring: KeyRing) -> None:
        self._key = ring.derive(_CONTEXT).newest

    def draws(self, action_id: str, share: float) -> bool:
        """Whether an action is among a share, 0 to 1, of all."""
        if share <= 0.0:
            return False
        number = blake3(action_id.encode(), key=self._key).digest(length=_BYTES)
        return int.from_bytes(number, "big") < share * 2.0 ** (8 * _BYTES)
