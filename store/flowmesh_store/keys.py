"""The layout of a bucket or directory, and the form of keys.

::

    cas/<scope>/<2 hex>/<digest>     blobs
    actions/<scope>/<action_id>      action results; in a directory all of them are in actions/log
    runs/<uid>/...                   spec, ledger segments, final
    format                           layout, and the identity scheme of all content
    epochs/<n>                       leaderships
    lineage/...                      derivations, by run
    request-log/<day>/...            who asked for what
    revoked/<scope>/<identity>       content that was revoked
    quarantine/<class>               signature classes whose results did not repeat
    withheld/<scope>/<action_id>     results that look-ups do not find
    proof/...                        the check of conditional writes at start
"""

import re

from flowmesh_core.errors import StoreError
from flowmesh_core.units import Digest

CAS = "cas"
ACTIONS = "actions"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_SEGMENT = r"[A-Za-z0-9_=@-][A-Za-z0-9._=@-]{0,199}"
_SCOPE = re.compile(_SEGMENT)
_KEY = re.compile(rf"(?!{CAS}(?:/|\Z)){_SEGMENT}(?:/{_SEGMENT})*")


def check_digest(digest: str) -> Digest:
    """Refuses text that is not a digest, so that no path can leave its directory.

    Raises:
        StoreError: it is not 64 lower-case hexadecimal digits.
    """
    if _DIGEST.fullmatch(digest) is None:
        raise StoreError(
            f"{digest[:80]!r} is not a digest",
            remedy="a digest is 64 lower-case hexadecimal digits of a blake3-256 hash",
        )
    return Digest(digest)


def is_digest(name: str) -> bool:
    """Whether this is a digest; see :func:`check_digest`."""
    return _DIGEST.fullmatch(name) is not None


def is_scope(name: str) -> bool:
    """Whether this may be a scope; see :func:`area_prefix`."""
    return _SCOPE.fullmatch(name) is not None


def area_prefix(scope: str) -> str:
    """Returns what the keys of a scope's blobs begin with, ``cas/<scope>/``.

    Raises:
        StoreError: the scope is not one segment of a key.
    """
    if not is_scope(scope):
        raise StoreError(
            f"{scope[:200]!r} is not a scope",
            remedy="a scope is one segment of a key: [A-Za-z0-9._=@-], not beginning with a dot",
        )
    return f"{CAS}/{scope}/"


def blob_name(digest: str) -> str:
    """Returns the key of a blob after its scope's prefix, ``<2 hex>/<digest>``."""
    checked = check_digest(digest)
    return f"{checked[:2]}/{checked}"


def is_key(key: str) -> bool:
    """Whether a record may have this key; see :func:`check_key`."""
    return _KEY.fullmatch(key) is not None


def check_key(key: str) -> str:
    """Refuses keys that are malformed or below ``cas/``.

    Segments consist of at most 200 characters of ``[A-Za-z0-9._=@-]`` and do not begin with a dot
    (such names are the store's own).

    Raises:
        StoreError: the key is refused.
    """
    if is_key(key):
        return key
    raise StoreError(
        f"{key[:200]!r} is not a key of a record",
        remedy="use slash-separated segments of [A-Za-z0-9._=@-] that do not begin with a dot, "
        f"outside {CAS}/",
    )


def action_key(scope: str, action_id: str) -> str:
    """Returns the key of an action result, ``actions/<scope>/<action_id>``.

    Raises:
        StoreError: the scope or the id is not one segment of a key.
    """
    if "/" in scope or "/" in action_id:
        raise StoreError(
            f"scope {scope!r} or action id {action_id!r} contains a slash",
            remedy="each must be one segment of a key",
        )
    return f"{ACTIONS}/{scope}/{action_id}"
