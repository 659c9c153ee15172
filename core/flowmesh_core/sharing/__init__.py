"""Sharing: scopes, cache policies and references."""

from flowmesh_core.sharing.references import (
    REFERENCE_PREFIX,
    Reference,
    former_digest,
    issue,
    read_reference,
    verify,
)
from flowmesh_core.sharing.scopes import (
    ALL_SCOPE,
    ScopePlan,
    group_scope,
    namespace_scope,
    plan_scopes,
)

__all__ = [
    "ALL_SCOPE",
    "REFERENCE_PREFIX",
    "Reference",
    "ScopePlan",
    "former_digest",
    "group_scope",
    "issue",
    "namespace_scope",
    "plan_scopes",
    "read_reference",
    "verify",
]
