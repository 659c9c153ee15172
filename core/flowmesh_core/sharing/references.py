"""References: how users name content, since a digest alone is no right to read it.

``cas:<digest>.<mac>``. The MAC is keyed by the secret of the scope for which the reference was
issued, so a reference of another tenant is worth nothing unless its scope is looked up too. The
control plane issues them at upload, import and publication; workers hold no key and cannot.
"""

import hmac
import re
from collections.abc import Iterable

from blake3 import blake3

from flowmesh_core.errors import InvalidReferenceError
from flowmesh_core.identity.digest import is_digest
from flowmesh_core.units import Digest

REFERENCE_PREFIX = "cas:"
MIN_KEY_BYTES = 16
MAC_BYTES = 16
_CONTEXT = "flowmesh.dev v1 master key of the references' scopes"
_FORM = re.compile(r"cas:([0-9a-f]{64})\.([0-9a-f]{32})")


def issue(master_key: bytes, scope: str, digest: Digest) -> str:
    """Makes the reference by which a scope's users may name this content.

    Args:
        master_key: the cluster's secret, at least 16 random bytes.
        scope: the scope that may read it.
        digest: the content.

    Raises:
        InvalidReferenceError: the digest is none, or the key too short.
    """
    if not is_digest(digest):
        raise InvalidReferenceError(f"{_short(digest)} is no digest")
    return f"{REFERENCE_PREFIX}{digest}.{_mac(_scope_secret(master_key, scope), digest)}"


def verify(master_key: bytes, scopes: Iterable[str], reference: str) -> Digest:
    """Reads a reference that was issued for one of these scopes.

    Args:
        master_key: the cluster's secret.
        scopes: the scopes that the user's namespace looks in.
        reference: what the user wrote.

    Returns:
        The digest of the content.

    Raises:
        InvalidReferenceError: malformed, or not issued for any of these scopes; which of the two
            reasons holds for a well-formed one is not told.
    """
    match = _FORM.fullmatch(reference)
    if match is None:
        raise InvalidReferenceError(
            f"{_short(reference)} is no reference",
            remedy="it looks like cas:<64 hex digits>.<32 hex digits>; a digest alone is none",
        )
    digest, mac = Digest(match[1]), match[2]
    # Every scope is tried, so that the time taken does not tell which one matched.
    valid = [hmac.compare_digest(_mac(_scope_secret(master_key, s), digest), mac) for s in scopes]
    if not any(valid):
        raise InvalidReferenceError(
            f"the reference {_short(reference)} is not valid for this namespace",
            remedy="upload the content from here, or ask for a cache policy that shares it",
        )
    return digest


def _scope_secret(master_key: bytes, scope: str) -> bytes:
    if len(master_key) < MIN_KEY_BYTES:
        raise InvalidReferenceError(
            f"the master key has {len(master_key)} bytes",
            remedy=f"give at least {MIN_KEY_BYTES} random bytes",
        )
    key = blake3(master_key, derive_key_context=_CONTEXT).digest()
    return blake3(scope.encode(), key=key).digest()


def _mac(secret: bytes, digest: Digest) -> str:
    return blake3(digest.encode(), key=secret).digest(length=MAC_BYTES).hex()


def _short(text: str) -> str:
    limit = 24
    return repr(text if len(text) <= limit else text[:limit] + "…")
