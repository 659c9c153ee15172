"""The installation's master keys, newest first, and the keys derived from them.

Everything that is signed with a MAC (references, attempt tokens, records) names the id of the key
that it used, so that keys can be rotated: the newest key makes new MACs, and all keys of the ring
verify until they are removed. Each purpose has a key of its own, derived with blake3 under a
context string, so that a MAC of one purpose is never valid for another.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from blake3 import blake3

from flowmesh_core.errors import FlowMeshError

KEY_ID_DIGITS = 2
MIN_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class DerivedKeys:
    """The keys of one purpose.

    Attributes:
        newest_id: the id of the key that makes new MACs, two hexadecimal digits.
        by_id: all keys that verify, 32 bytes each.
    """

    newest_id: str
    by_id: Mapping[str, bytes]

    @property
    def newest(self) -> bytes:
        """The key that makes new MACs."""
        return self.by_id[self.newest_id]


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Master keys by id, newest first.

    Attributes:
        secrets: id (two hexadecimal digits) and at least 16 random bytes.
    """

    secrets: tuple[tuple[str, bytes], ...]

    def __post_init__(self) -> None:
        """Checks the keys.

        Raises:
            FlowMeshError: there is none, one is too short, or an id is not valid or repeated.
        """
        if not self.secrets:
            raise FlowMeshError("the key ring is empty", remedy="restore the master key")
        ids = [key_id for key_id, _ in self.secrets]
        for key_id, secret in self.secrets:
            digits = set(key_id) <= set("0123456789abcdef")
            if len(key_id) != KEY_ID_DIGITS or not digits or ids.count(key_id) > 1:
                raise FlowMeshError(
                    f"{key_id!r} is not a valid key id in this ring",
                    remedy=f"use {KEY_ID_DIGITS} hexadecimal digits, each id once",
                )
            if len(secret) < MIN_KEY_BYTES:
                raise FlowMeshError(
                    f"master key {key_id} has {len(secret)} bytes",
                    remedy=f"give at least {MIN_KEY_BYTES} random bytes",
                )

    @classmethod
    def of(cls, secret: bytes) -> "KeyRing":
        """Returns the ring of one key, whose id is 00."""
        return cls((("00", secret),))

    def derive(self, context: str) -> DerivedKeys:
        """Returns the keys of a purpose.

        Args:
            context: names the purpose; unique, constant and printed in no message.
        """
        derived = {i: blake3(s, derive_key_context=context).digest() for i, s in self.secrets}
        return DerivedKeys(self.secrets[0][0], derived)
