"""Identity: the canonical form of values, digests, and the names of actions and batches."""

from flowmesh_core.identity.action import FIELD_DEFAULTS, action_id, signature
from flowmesh_core.identity.canonical import canonical_bytes, decode
from flowmesh_core.identity.coerce import coerce, default_of, effective_params
from flowmesh_core.identity.content import content_identity, tree_identity
from flowmesh_core.identity.digest import (
    SCHEME,
    digest_bytes,
    digest_tagged,
    digest_value,
    is_digest,
)

__all__ = [
    "FIELD_DEFAULTS",
    "SCHEME",
    "action_id",
    "canonical_bytes",
    "coerce",
    "content_identity",
    "decode",
    "default_of",
    "digest_bytes",
    "digest_tagged",
    "digest_value",
    "effective_params",
    "is_digest",
    "signature",
    "tree_identity",
]
