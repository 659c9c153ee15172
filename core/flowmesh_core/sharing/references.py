"""References: how users name content, since a digest alone does not give the right to read it.

``cas:<kind>:<blob>.<key id><mac>``. The MAC covers the kind and the blob's digest and is keyed by
the secret of the scope for which the reference was issued: a reference of another tenant is not
valid unless its scope is looked up too, and a reference to metrics never reads a model. The secret
depends on a key of the installation's ring, which the reference names, and on the scope's
generation: raising that (``spec.referenceGeneration`` of a cache policy) voids all references of
the scope. The control plane issues references at upload, import and publication; workers have no
key and cannot. Version 1, ``cas:<digest>.<mac>``, named no kind and is refused.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass

from blake3 import blake3

from flowmesh_core.catalog.contract import PortKind
from flowmesh_core.errors import InvalidReferenceError
from flowmesh_core.identity import canonical_bytes, is_digest
from flowmesh_core.sharing.key_ring import DerivedKeys
from flowmesh_core.units import Digest

REFERENCE_PREFIX = "cas:"
KINDS = tuple(kind.value for kind in PortKind)
"""The kinds of content that a reference may name: those of ports."""
MAC_BYTES = 16
REFERENCES_CONTEXT = "flowmesh.dev 2 references"
"""Derives the keys that sign references (``KeyRing.derive``)."""
_VERSION = "ref2"
_FORM = re.compile(rf"cas:({'|'.join(KINDS)}):([0-9a-f]{{64}})\.([0-9a-f]{{2}})([0-9a-f]{{32}})")


@dataclass(frozen=True, slots=True)
class Reference:
    """The content that a reference names.

    Attributes:
        kind: what the content was issued as; one of ``KINDS``.
        blob: the digest of its bytes; of a data set, a model or an adapter those of its manifest.
    """

    kind: str
    blob: Digest


def issue(keys: DerivedKeys, scope: str, generation: int, kind: str, blob: Digest) -> str:
    """Returns the reference by which a scope's users may name this content.

    Args:
        keys: derived under ``REFERENCES_CONTEXT``; the newest one signs.
        scope: the scope that may read it.
        generation: the scope's (``reference_generation``).
        kind: what the content is; it can be read as nothing else.
        blob: the digest of the content's bytes.

    Raises:
        InvalidReferenceError: the kind or the digest is not one.
    """
    if kind not in KINDS:
        raise InvalidReferenceError(f"{_short(kind)} is not a kind of content")
    if not is_digest(blob):
        raise InvalidReferenceError(f"{_short(blob)} is not a digest")
    mac = _mac(_scope_secret(keys.newest, scope, generation), kind, blob)
    return f"{REFERENCE_PREFIX}{kind}:{blob}.{keys.newest_id}{mac}"


def read_reference(text: str) -> Reference:
    """Returns what a reference names, without checking that it was issued.

    Raises:
        InvalidReferenceError: it is malformed.
    """
    return _parsed(text)[0]


def verify(keys: DerivedKeys, scopes: Mapping[str, int], reference: str) -> Reference:
    """Returns what a reference names, if it was issued for one of these scopes.

    Args:
        keys: as for :func:`issue`; any of them may have signed.
        scopes: those that the user's namespace looks in, with their generations.
        reference: as the user wrote it.

    Returns:
        The content, and what it may be read as.

    Raises:
        InvalidReferenceError: malformed, or not issued for any of these
            scopes, or before its scope's generation was raised, which the message does not
            distinguish from a forged one; or signed with a key that is not in use any more.
    """
    named, key_id, mac = _parsed(reference)
    key = keys.by_id.get(key_id)
    if key is None:
        raise InvalidReferenceError(
            f"the reference {_short(reference)} was signed with master key {key_id}, which is not"
            " in use any more",
            remedy="take a new one from `fmesh outputs`, or upload again",
        )
    # Every scope is tried, so that the time taken does not reveal which one matched.
    valid = [
        hmac.compare_digest(
            _mac(_scope_secret(key, scope, generation), named.kind, named.blob), mac
        )
        for scope, generation in scopes.items()
    ]
    if not any(valid):
        raise InvalidReferenceError(
            f"the reference {_short(reference)} is not valid for this namespace",
            remedy="take a new one from `fmesh outputs`, upload the content from here, or request a"
            " cache policy that shares it",
        )
    return named


def _parsed(text: str) -> tuple[Reference, str, str]:
    """Returns what it names, the key's id and the MAC."""
    match = _FORM.fullmatch(text)
    if match is not None:
        return Reference(match[1], Digest(match[2])), match[3], match[4]
    raise InvalidReferenceError(
        f"{_short(text)} is not a reference",
        remedy="it looks like cas:<kind>:<64 hex digits>.<34 hex digits>; a digest alone is not"
        " one",
    )


def _scope_secret(key: bytes, scope: str, generation: int) -> bytes:
    return blake3(canonical_bytes([scope, generation]), key=key).digest()


def _mac(secret: bytes, kind: str, blob: Digest) -> str:
    content = canonical_bytes([_VERSION, kind, blob])
    return blake3(content, key=secret).digest(length=MAC_BYTES).hex()


def _short(text: str) -> str:
    limit = 24
    return repr(text if len(text) <= limit else text[:limit] + "…")
