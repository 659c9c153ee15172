"""With which namespaces results of a scope are shared, from the cache policies."""

from collections.abc import Sequence
from dataclasses import dataclass

from flowmesh_api.v1.fabric import CachePolicy, Verify
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


def policy_changes(before: CachePolicy | None, after: CachePolicy) -> str:
    """Returns what setting a policy has changed, beside the one of its name that was there."""
    if before is None:
        return "is set"
    if before == after:
        return "is unchanged"
    changed = [
        _members("namespaces", before.namespaces, after.namespaces),
        _members("labels", labels_text(before).split(" and "), labels_text(after).split(" and ")),
    ]
    for name in CachePolicy.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if name not in ("namespaces", "labels") and old != new:
            label = name.removesuffix("_s").replace("_", " ")
            changed.append(f"{label} {_shown(old)} → {_shown(new)}")
    return f"replaces the one of its name: {'; '.join(filter(None, changed))}"


def _members(what: str, before: Sequence[str], after: Sequence[str]) -> str:
    added = [name for name in after if name and name not in before]
    removed = [name for name in before if name and name not in after]
    parts = (("without", removed), ("with", added))
    text = ", ".join(f"{word} {', '.join(names)}" for word, names in parts if names)
    return f"{what} {text}" if text else ""


def _shown(value: object) -> str:
    if isinstance(value, Verify):
        return ", ".join(f"{n} {getattr(value, n)}" for n in value.__struct_fields__)
    return "none" if value in (None, "") else str(value)
