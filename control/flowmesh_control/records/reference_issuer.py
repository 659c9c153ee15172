"""Issues and verifies references, with the installation's keys and the scopes' generations.

Uploads, ends of runs and readers of ended runs use it; nothing else has the keys.
"""

from collections.abc import Iterable

from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_core.sharing import (
    REFERENCES_CONTEXT,
    KeyRing,
    Reference,
    ScopePlan,
    issue,
    reference_generation,
    verify,
)
from flowmesh_core.units import Digest


class ReferenceIssuer:
    """The references of an installation."""

    def __init__(self, key_ring: KeyRing, policies: CachePolicyStore) -> None:
        self._keys = key_ring.derive(REFERENCES_CONTEXT)
        self._policies = policies

    def issue(self, scope: str, kind: str, blob: Digest) -> str:
        """Returns a reference by which users of a scope may use a blob as this kind."""
        return issue(self._keys, scope, self._generation(scope), kind, blob)

    def verify(self, reference: str, plans: Iterable[ScopePlan]) -> Reference:
        """Returns what a reference names, if one of several namespaces may read it.

        Args:
            reference: what the user wrote.
            plans: the scopes of each namespace.

        Raises:
            InvalidReferenceError: it is malformed, or valid for none of them.
        """
        allowed = dict.fromkeys(scope for p in plans for scope in p.readable)
        return verify(self._keys, {s: self._generation(s) for s in allowed}, reference)

    def _generation(self, scope: str) -> int:
        return reference_generation(self._policies.all(), scope)
