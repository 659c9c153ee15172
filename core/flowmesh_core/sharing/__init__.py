"""Sharing: scopes, cache policies, references, master keys and seals."""

from flowmesh_core.sharing.key_ring import DerivedKeys, KeyRing
from flowmesh_core.sharing.references import (
    REFERENCE_PREFIX,
    REFERENCES_CONTEXT,
    Reference,
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
    reference_generation,
)

__all__ = [
    "ALL_SCOPE",
    "REFERENCES_CONTEXT",
    "REFERENCE_PREFIX",
    "DerivedKeys",
    "KeyRing",
    "Reference",
    "ScopePlan",
    "group_scope",
    "issue",
    "namespace_scope",
    "plan_scopes",
    "read_reference",
    "reference_generation",
    "verify",
]
