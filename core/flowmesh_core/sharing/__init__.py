"""Sharing: scopes, cache policies and references."""

from flowmesh_core.sharing.references import REFERENCE_PREFIX, issue, verify
from flowmesh_core.sharing.scopes import (
    ALL_SCOPE,
    CachePolicy,
    ScopePlan,
    Sharing,
    group_scope,
    namespace_scope,
    plan_scopes,
)

__all__ = [
    "ALL_SCOPE",
    "REFERENCE_PREFIX",
    "CachePolicy",
    "ScopePlan",
    "Sharing",
    "group_scope",
    "issue",
    "namespace_scope",
    "plan_scopes",
    "verify",
]
