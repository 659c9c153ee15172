"""With which namespaces results of a scope are shared, from the cache policies."""

from collections.abc import Sequence
from dataclasses import dataclass

from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_cli.views import formatting
from flowmesh_core.sharing.namespace_selection import ANY_NAMESPACE, selects
from flowmesh_core.sharing.scopes import is_shared, publishes_to


@dataclass(frozen=True, slots=True)
class SharedScope:
    """Who shares the results of a namespace.

    Attributes:
        scope: that they are published to.
        policies: names of the policies that share it.
        namespaces: the other namespaces that those select by name; ``*`` is every one.
        labels: labels of further namespaces, as ``key=value``, several of one policy joined.
    """

    scope: str
    policies: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


def shared_scope(policies: Sequence[CachePolicy], namespace: str, scope: str) -> SharedScope:
    """Returns who shares the results that a namespace publishes to a scope.

    Policies of another salt are left out: their actions have other names.
    """
    if not is_shared(scope):
        return SharedScope(scope)
    publishing = [p for p in policies if publishes_to(p, scope)]
    own = [p for p in publishing if selects(p, namespace, {})]
    salts = {p.salt for p in own or publishing if own or p.labels}
    sharing = [p for p in publishing if p.salt in salts]
    names = dict.fromkeys(n for p in sharing for n in p.namespaces if n != namespace)
    return SharedScope(
        scope,
        tuple(p.name for p in sharing),
        (ANY_NAMESPACE,) if ANY_NAMESPACE in names else tuple(sorted(names)),
        tuple(dict.fromkeys(labels_text(p) for p in sharing if p.labels)),
    )


def sharing_text(shared: SharedScope) -> str:
    """Returns the sentence on who shares results, without its subject."""
    if not is_shared(shared.scope):
        return "shared with no other namespace"
    through = ", ".join(shared.policies)
    why = f" ({formatting.scope(shared.scope)}{f'; cache policy {through}' if through else ''})"
    if ANY_NAMESPACE in shared.namespaces:
        return f"shared with every namespace{why}"
    others = [*shared.namespaces, *(f"namespaces with {text}" for text in shared.labels)]
    return f"shared with {', '.join(others) or 'no other namespace yet'}{why}"


def labels_text(policy: CachePolicy) -> str:
    """Returns the labels of a policy as ``key=value``, joined."""
    return " and ".join(f"{key}={value}" for key, value in policy.labels.items())
