"""Salts of prefix caches: tenants with different salts never share cached prefixes.

Without a salt of its own a tenant could time requests to learn which prompts another tenant sent.
A worker sees the salt, so it is derived from a secret: no other tenant can guess it.
"""

from blake3 import blake3

from flowmesh_core.sharing.key_ring import KeyRing

_CONTEXT = "flowmesh.dev 2 salts"
_BYTES = 16
_REMEMBERED_MAX = 10_000


class PrefixSalts:
    """Returns the salt of a scope; constant until the newest master key changes."""

    def __init__(self, ring: KeyRing) -> None:
        self._key = ring.derive(_CONTEXT).newest
        self._salts: dict[str, str] = {}

    def __call__(self, scope: str) -> str:
        """Returns the salt of a scope, 32 hexadecimal digits."""
        salt = self._salts.get(scope)
        if salt is None:
            if len(self._salts) >= _REMEMBERED_MAX:
                self._salts.clear()
            salt = blake3(scope.encode(), key=self._key).hexdigest(length=_BYTES)
            self._salts[scope] = salt
        return salt
