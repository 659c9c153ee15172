"""Which namespaces an administrator's object selects: by name, by label, or all."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

ANY_NAMESPACE = "*"
_BY_NAME, _BY_LABEL, _AS_ANY = range(3)


class NamespaceSelection(Protocol):
    """Selects namespaces; an object without labels selects none by label."""

    @property
    def name(self) -> str:
        """The object's name."""
        ...

    @property
    def namespaces(self) -> Sequence[str]:
        """Selected by name; ``*`` is every one."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels that a namespace must have, all of them."""
        ...


_Selection = TypeVar("_Selection", bound=NamespaceSelection)


def selects(selection: NamespaceSelection, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether an object is for a namespace with these labels."""
    return _closeness(selection, namespace, labels) is not None


def most_specific(
    selections: Sequence[_Selection], namespace: str, labels: Mapping[str, str]
) -> _Selection | None:
    """Returns the object for a namespace: by name before by label before ``*``, then by its name.

    None where none selects the namespace.
    """
    ranked = ((_closeness(s, namespace, labels), s.name, s) for s in selections)
    found = [(close, name, s) for close, name, s in ranked if close is not None]
    return min(found, key=lambda one: one[:2])[2] if found else None


def _closeness(
    selection: NamespaceSelection, namespace: str, labels: Mapping[str, str]
) -> int | None:
    if namespace in selection.namespaces:
        return _BY_NAME
    if selection.labels and selection.labels.items() <= labels.items():
        return _BY_LABEL
    return _AS_ANY if ANY_NAMESPACE in selection.namespaces else None
