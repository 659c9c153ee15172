"""Digests: blake3-256, of blobs as they are and of values under the scheme's version.

A blob's digest is the plain hash of its bytes, which any blake3 tool confirms. The digest of a
value starts with the version of the scheme and a tag, so that values of two kinds or two schemes
never share a name.
"""

import re
from typing import Any

from blake3 import blake3

from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_core.units import Digest

SCHEME = 2
PREFIX = b"flowmesh/%d\0" % SCHEME
_DIGEST = re.compile(r"[0-9a-f]{64}")


def digest_bytes(data: bytes | bytearray | memoryview) -> Digest:
    """Returns the digest of a blob's content."""
    return Digest(blake3(data).hexdigest())


def digest_value(tag: str, value: Any) -> Digest:
    """Returns the digest of a value.

    Args:
        tag: the kind of value, ASCII, e.g. ``action``.
        value: anything that :func:`canonical_bytes` accepts.

    Raises:
        IdentityError: the value has no canonical form.
    """
    return digest_tagged(tag, canonical_bytes(value))


def digest_tagged(tag: str, data: bytes) -> Digest:
    """Returns the digest of bytes in canonical form, under the scheme's version and a tag."""
    return Digest(blake3(PREFIX + tag.encode() + b"\0" + data).hexdigest())


def is_digest(text: str) -> bool:
    """Whether this is 64 lower-case hexadecimal digits."""
    return _DIGEST.fullmatch(text) is not None
