"""Where a namespace publishes results and where it looks for them.

The control plane makes one plan per namespace from the cluster's cache policies. A scope is an
opaque string to the store (``actions/<scope>/<action_id>``): ``ns-team-a``, ``group-x``, ``all``. A
namespace without a policy shares with no other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from flowmesh_api.v1.enums import Disclosure, PrefixCache, Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.problems import Problem
from flowmesh_core.errors import SpecError
from flowmesh_core.sharing.namespace_selection import ANY_NAMESPACE, selects

ALL_SCOPE = "all"
SHARED_TRUST = 1
"""The least trust of pools that make results for a shared scope, unless its policy says."""
_OWN = "ns-"
_GROUP = "group-"
AUDIT_SCOPE = "audit-"
"""Begins the scope of an audit's actions; no other run publishes or looks there."""


@dataclass(frozen=True, slots=True)
class ScopePlan:
    """The scopes of one namespace.

    Attributes:
        publish: the scope that its results are published to.
        lookup: the scopes that it looks in and merges in, in this order.
        salt: the policy's cache salt.
        ttl_s: how long its results stay valid, in seconds; the store's default where None.
        private: its own scope; results with ignored inputs stay there.
        shares_prefixes: whether prefix caches are shared within ``publish``; else a namespace has
            its own.
        policy: the name of the policy, for ``fmesh why``; empty where none applies.
        unattributed: whether runs of other namespaces are not shown to its runs.
        min_trust: the least trust of the pools that may make results for the namespace.
        inputs: further scopes whose content is read and whose results are not looked up.
        verify_sample: the share of its results that are made again on another worker and compared,
            on one of a pool of at least ``verify_min_trust``.
    """

    publish: str
    lookup: tuple[str, ...]
    private: str
    salt: str = ""
    ttl_s: float | None = None
    policy: str = ""
    shares_prefixes: bool = False
    unattributed: bool = False
    min_trust: int = 0
    inputs: tuple[str, ...] = ()
    verify_sample: float = 0.0
    verify_min_trust: int = 0

    @property
    def readable(self) -> tuple[str, ...]:
        """The scopes that content is read from, in this order."""
        if self.lookup and not self.inputs:
            return self.lookup
        return tuple(dict.fromkeys((*self.lookup, self.publish, *self.inputs)))


def namespace_scope(namespace: str) -> str:
    """Returns the scope of one namespace alone."""
    return f"{_OWN}{namespace}"


def group_scope(group: str) -> str:
    """Returns the scope of a group."""
    return f"{_GROUP}{group}"


def is_shared(scope: str) -> bool:
    """Whether more than one namespace may publish to a scope."""
    return scope == ALL_SCOPE or scope.startswith(_GROUP)


def may_read(namespace: str, scope: str) -> bool:
    """Whether some cache policy lets runs of a namespace read a scope: not the own one of others.

    Audits may read what the run that they repeat reads.
    """
    return scope == namespace_scope(namespace) or not scope.startswith(_OWN)


def audit_scopes(uid: str, audited: ScopePlan, min_trust: int = 0) -> ScopePlan:
    """Returns the scopes of an audit: its own for what is in flight, and none to look in.

    Args:
        uid: of the audit.
        audited: the scopes of the run whose actions it repeats; their inputs lie there.
        min_trust: what the audited run asks of its workers.
    """
    scope = f"{AUDIT_SCOPE}{uid}"
    return ScopePlan(
        publish=scope, lookup=(), private=scope, inputs=audited.readable, min_trust=min_trust
    )


def plan_scopes(
    policies: Iterable[CachePolicy], namespace: str, labels: Mapping[str, str] | None = None
) -> ScopePlan:
    """Returns where a namespace publishes and looks.

    Args:
        policies: all policies, in any order.
        namespace: its name.
        labels: its labels.

    Raises:
        SpecError: a policy is malformed, or two that select the namespace contradict each other.
    """
    every = list(policies)
    selecting = sorted(
        (p for p in every if selects(p, namespace, labels or {})), key=lambda p: p.name
    )
    own = namespace_scope(namespace)
    if not selecting:
        return ScopePlan(publish=own, lookup=(own,), private=own)
    plans = [_plan_of(p, own) for p in selecting]
    first, chosen = plans[0], selecting[0]
    for other, policy in zip(plans[1:], selecting[1:], strict=True):
        differing = _difference(first, other)
        if differing:
            raise SpecError([_conflict(namespace, chosen.name, policy.name, differing)])
    sharing = [p for p in every if publishes_to(p, first.publish)]
    deciding = [*selecting, *sharing]
    return replace(
        first,
        unattributed=any(map(_unattributed, sharing)),
        min_trust=max(map(least_trust, deciding)),
        verify_sample=max(p.verify.sample for p in deciding),
        verify_min_trust=max(p.verify.min_trust for p in deciding),
    )


def least_trust(policy: CachePolicy) -> int:
    """Returns the least trust that a policy asks of the pools that make results for its scope."""
    if policy.min_trust is not None:
        return policy.min_trust
    return 0 if policy.scope is Sharing.PRIVATE else SHARED_TRUST


def _unattributed(policy: CachePolicy) -> bool:
    if policy.disclosure is None:
        return policy.scope is Sharing.ALL
    return policy.disclosure is Disclosure.UNATTRIBUTED


def reference_generation(policies: Iterable[CachePolicy], scope: str) -> int:
    """Returns a scope's generation: the highest of the policies whose namespaces publish to it."""
    return max((p.reference_generation for p in policies if publishes_to(p, scope)), default=0)


def publishes_to(policy: CachePolicy, scope: str) -> bool:
    """Whether namespaces that a policy selects publish to a scope."""
    if policy.scope is Sharing.GROUP:
        return scope == group_scope(policy.group)
    if policy.scope is Sharing.ALL:
        return scope == ALL_SCOPE
    if ANY_NAMESPACE in policy.namespaces:
        return scope.startswith(_OWN)
    return scope in map(namespace_scope, policy.namespaces)


def _plan_of(policy: CachePolicy, own: str) -> ScopePlan:
    publish = {
        Sharing.PRIVATE: own,
        Sharing.GROUP: group_scope(policy.group),
        Sharing.ALL: ALL_SCOPE,
    }[policy.scope]
    if (policy.scope is Sharing.GROUP) != bool(policy.group):
        reason = "scope: group needs a group" if not policy.group else "only scope: group has one"
        raise SpecError([Problem(f"FlowMeshCachePolicy {policy.name}: spec.group", reason)])
    if policy.scope is Sharing.PRIVATE and policy.labels and policy.reference_generation:
        where = f"FlowMeshCachePolicy {policy.name}: spec.referenceGeneration"
        reason = "a policy of scope private cannot set it by labels; name the namespaces"
        raise SpecError([Problem(where, reason)])
    lookup = (own,) if publish == own else (own, publish)
    shares = policy.prefix_cache is PrefixCache.SHARED
    return ScopePlan(publish, lookup, own, policy.salt, policy.ttl_s, policy.name, shares)


def _difference(a: ScopePlan, b: ScopePlan) -> str:
    if a.publish != b.publish:
        return f"one publishes to {a.publish}, the other to {b.publish}"
    if a.salt != b.salt:
        return "their salts differ"
    if a.ttl_s != b.ttl_s:
        return "they keep results for different times"
    if a.shares_prefixes != b.shares_prefixes:
        return "only one of them shares prefix caches"
    return ""


def _conflict(namespace: str, first: str, second: str, differing: str) -> Problem:
    return Problem(
        f"FlowMeshCachePolicy {second}: spec.namespaces",
        f"namespace {namespace!r} is selected by the policies {first!r} and {second!r}, and"
        f" {differing}; select it in one of them only, or remove one"
        f" (`fmesh policies delete {first}`, on a cluster `kubectl delete fmcp {first}`)",
    )
