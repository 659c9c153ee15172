"""The quota of a namespace as the control plane reads it."""

import msgspec


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """What each namespace that a ``FlowMeshQuota`` selects may have.

    Attributes:
        namespaces: selected by name; ``*`` is every one.
        labels: labels of further selected namespaces; empty for none.
        weight: in fair shares; a namespace without a quota has 1.
    """

    name: str
    namespaces: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    weight: float = 1.0
