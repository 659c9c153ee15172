"""Blobs of a store as one namespace sees them."""

from collections.abc import Sequence
from typing import Any

from flowmesh_core.protocol.attempt_tokens import CONTEXT, AttemptTokens, TokenHolder
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.blobs import BlobView, BlobViews

SCOPE = "ns-team-a"


def blobs_of(store: BlobViews, scope: str = SCOPE) -> BlobView:
    return store.view(write=scope, read=(scope,))


class OneView:
    """A store that shows every reader the same blobs."""

    def __init__(self, blobs: Any) -> None:
        self._blobs = blobs

    def view(self, *, write: str, read: Sequence[str], token: str = "") -> Any:
        return self._blobs


def token_of(write: str = SCOPE, read: tuple[str, ...] = (SCOPE,)) -> str:
    """Returns the token of an attempt that may use these scopes."""
    tokens = AttemptTokens(KeyRing.of(b"k" * 32).derive(CONTEXT))
    holder = TokenHolder("local", "w1", "i")
    return tokens.issue(f"{write}/a/1", holder, generation=1, read_scopes=read, issued_s=0.0)
