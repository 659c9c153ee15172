"""References: how users name content, since a digest alone does not give the right to read it.

``cas:<kind>:<digest>.<key id><mac>``. The MAC covers the kind and the digest and is keyed by the
secret of the scope for which the reference was issued: a reference of another tenant is not valid
unless its scope is looked up too, and a reference to metrics never reads a model. The control plane
issues references at upload, import and publication; workers have no key and cannot. Version 1,
``cas:<digest>.<mac>``, named no kind and is refused.
"""

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass

from blake3 import blake3

from flowmesh_core.catalog.contract import PortKind
from flowmesh_core.errors import InvalidReferenceError
from flowmesh_core.identity import canonical_bytes, is_digest
from flowmesh_core.units import Digest

REFERENCE_PREFIX = "cas:"
KINDS = tuple(kind.value for kind in PortKind)
"""The kinds of content that a reference may name: those of ports."""
MIN_KEY_BYTES = 16
MAC_BYTES = 16
KEY_ID = "00"
"""The id of the only key."""
_GENERATION = 0
"""Of a scope's secret; part of its derivation, so that references stay valid once keys rotate."""
_CONTEXT = "flowmesh.dev 2 references"
_VERSION = "ref2"
_FORM = re.compile(rf"cas:({'|'.join(KINDS)}):([0-9a-f]{{64}})\.([0-9a-f]{{2}})([0-9a-f]{{32}})")
_FORMER = re.compile(r"cas:([0-9a-f]{64})\.[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Reference:
    """The content that a reference names.

    Attributes:
        kind: what the content was issued as; one of ``KINDS``.
        digest: of its bytes; of a data set, a model or an adapter those of its manifest.
    """

    kind: str
    digest: Digest


def issue(master_key: bytes, scope: str, kind: str, digest: Digest) -> str:
    """Returns the reference by which a scope's users may name this content.

    Args:
        master_key: the cluster's secret, at least 16 random bytes.
        scope: the scope that may read it.
        kind: what the content is; it can be read as nothing else.
        digest: of the content's bytes.

    Raises:
        InvalidReferenceError: the kind or the digest is not one, or the key is too short.
    """
    if kind not in KINDS:
        raise InvalidReferenceError(f"{_short(kind)} is not a kind of content")
    if not is_digest(digest):
        raise InvalidReferenceError(f"{_short(digest)} is not a digest")
    mac = _mac(_scope_secret(master_key, scope), kind, digest)
    return f"{REFERENCE_PREFIX}{kind}:{digest}.{KEY_ID}{mac}"


def read_reference(text: str) -> Reference:
    """Returns what a reference names, without checking that it was issued.

    Raises:
        InvalidReferenceError: it is malformed, or of an older release.
    """
    return _parsed(text)[0]


def verify(master_key: bytes, scopes: Iterable[str], reference: str) -> Reference:
    """Returns what a reference names, if it was issued for one of these scopes.

    Args:
        master_key: the cluster's secret.
        scopes: the scopes that the user's namespace looks in.
        reference: as the user wrote it.

    Returns:
        The content, and what it may be read as.

    Raises:
        InvalidReferenceError: malformed, of an older release, or not issued for any of these
            scopes; the message does not distinguish the last from a forged one.
    """
    named, key_id, mac = _parsed(reference)
    # Every scope is tried, so that the time taken does not reveal which one matched.
    valid = [
        hmac.compare_digest(_mac(_scope_secret(master_key, s), named.kind, named.digest), mac)
        for s in scopes
    ]
    if key_id != KEY_ID or not any(valid):
        raise InvalidReferenceError(
            f"the reference {_short(reference)} is not valid for this namespace",
            remedy="upload the content from here, or request a cache policy that shares it",
        )
    return named


def former_digest(text: str) -> Digest | None:
    """Returns the digest in a reference of version 1; None where the text is not one."""
    match = _FORMER.fullmatch(text)
    return None if match is None else Digest(match[1])


def _parsed(text: str) -> tuple[Reference, str, str]:
    """Returns what it names, the key's id and the MAC."""
    match = _FORM.fullmatch(text)
    if match is not None:
        return Reference(match[1], Digest(match[2])), match[3], match[4]
    if former_digest(text) is not None:
        raise InvalidReferenceError(
            f"the reference {_short(text)} was made by an older release",
            remedy="take a new one from `fmesh outputs`, or upload again",
        )
    raise InvalidReferenceError(
        f"{_short(text)} is no reference",
        remedy="it looks like cas:<kind>:<64 hex digits>.<34 hex digits>; a digest alone is none",
    )


def _scope_secret(master_key: bytes, scope: str) -> bytes:
    if len(master_key) < MIN_KEY_BYTES:
        raise InvalidReferenceError(
            f"the master key has {len(master_key)} bytes",
            remedy=f"give at least {MIN_KEY_BYTES} random bytes",
        )
    key = blake3(master_key, derive_key_context=_CONTEXT).digest()
    return blake3(canonical_bytes([scope, _GENERATION]), key=key).digest()


def _mac(secret: bytes, kind: str, digest: Digest) -> str:
    content = canonical_bytes([_VERSION, kind, digest])
    return blake3(content, key=secret).digest(length=MAC_BYTES).hex()


def _short(text: str) -> str:
    limit = 24
    return repr(text if len(text) <= limit else text[:limit] + "…")
