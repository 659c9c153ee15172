"""The type of digests, in the API and in the core."""

from typing import NewType

Digest = NewType("Digest", str)
"""64 lower-case hexadecimal digits of a blake3-256 hash."""
