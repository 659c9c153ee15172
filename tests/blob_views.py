"""Blobs of a store as one namespace sees them."""

from flowmesh_store.blobs import BlobView, BlobViews

SCOPE = "ns-team-a"


def blobs_of(store: BlobViews, scope: str = SCOPE) -> BlobView:
    return store.view(write=scope, read=(scope,))
