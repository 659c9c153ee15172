"""The identities of content: what it is read as, together with what it is.

A blob's name says only which bytes it has. The identity of an artifact also contains its kind, so
bytes that are valid as two kinds have two identities, and a result that was computed from one is
never found for the other. Data sets have ``dataset_digest``, since theirs is that of their rows.
"""

from collections.abc import Iterable
from typing import Protocol

from flowmesh_core.errors import IdentityError
from flowmesh_core.identity.digest import digest_tagged, digest_value
from flowmesh_core.units import Digest

_OF_BYTES = frozenset({"metrics", "blob"})
_OF_FILES = frozenset({"model", "adapter"})


class FileEntry(Protocol):
    """A file of a directory, as the store's manifest of it has it."""

    @property
    def path(self) -> str:
        """Relative to the directory, with slashes."""
        ...

    @property
    def mode(self) -> int:
        """0o755 where it is executable, else 0."""
        ...

    @property
    def bytes(self) -> int:
        """Its size."""
        ...

    @property
    def digest(self) -> Digest:
        """Of its content."""
        ...


def content_identity(kind: str, blob: Digest) -> Digest:
    """Returns the identity of metrics or of a blob, without reading the content again.

    Args:
        kind: ``metrics`` or ``blob``.
        blob: the digest of its bytes.

    Raises:
        IdentityError: another kind, whose identity is not that of its bytes.
    """
    if kind not in _OF_BYTES:
        raise IdentityError(f"content of kind {kind!r} is not identified by its bytes")
    return digest_tagged(kind, bytes.fromhex(blob))


def tree_identity(kind: str, files: Iterable[FileEntry]) -> Digest:
    """Returns the identity of a model or an adapter, however its manifest is written.

    Args:
        kind: ``model`` or ``adapter``.
        files: of its directory, in any order.

    Raises:
        IdentityError: another kind, or a path that is not Unicode text.
    """
    if kind not in _OF_FILES:
        raise IdentityError(f"content of kind {kind!r} is not a directory")
    ordered = sorted(files, key=lambda f: f.path.encode(errors="surrogatepass"))
    return digest_value(kind, [[f.path, f.mode, f.bytes, f.digest] for f in ordered])
