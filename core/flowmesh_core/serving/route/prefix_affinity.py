"""The key under which prompts with one beginning go to one replica.

An engine keeps the attention states of prompts by their beginnings, each tenant's apart. The key is
a digest of the beginning, in whole blocks, so that the next question of a conversation finds what
the one before left. The number of blocks is rounded down to a power of two: a conversation that
grows changes its key, and so perhaps its replica, only when it has doubled, and no more beyond
``BLOCKS_MAX``. ``choose_replica`` bounds what one key may bring to a replica. Of a long prompt no
more is read than that.
"""

from collections.abc import Iterable

from blake3 import blake3

BLOCK_BYTES = 256
"""About 64 tokens of English."""
BLOCKS_MAX = 8
_MOST = BLOCK_BYTES * BLOCKS_MAX
_END = b"\0"
"""Comes after a text, not before it with its length: texts that begin alike may end differently."""


def prefix_key(salt: str, texts: Iterable[str]) -> str:
    """Returns the key of a prompt; empty where it is shorter than a block.

    Args:
        salt: separates the tenants' prefix caches; equal prompts of two tenants share nothing.
        texts: the prompt, or the roles and texts of messages in order.
    """
    beginning = bytearray()
    for text in texts:
        beginning += text[:_MOST].encode("utf-8", "surrogatepass")
        if len(beginning) >= _MOST:
            break
        beginning += _END
    blocks = min(len(beginning) // BLOCK_BYTES, BLOCKS_MAX)
    if not blocks:
        return ""
    size = BLOCK_BYTES * (1 << (blocks.bit_length() - 1))
    salted = len(salt).to_bytes(4, "big") + salt.encode()
    return blake3(salted + bytes(beginning[:size])).hexdigest(length=16)
