"""Where secrets are stored, and how a plan passes that to their readers.

Inputs and steps name secrets by the worker's names (``HF_TOKEN``). Only a cluster stores them in
objects: ``spec.secrets`` names these, and the compiler appends the place to the name, so that the
reader needs nothing else. No secret is part of an action's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pydantic import Field

from flowmesh_core.spec.fields import ObjectKey, ObjectName, SpecModel


class SecretKey(SpecModel):
    """One key of a Secret."""

    name: ObjectName = Field(description="The name of the Secret, in the workflow's namespace.")
    key: ObjectKey = Field(description="The key in the Secret.")


@dataclass(frozen=True, slots=True)
class SecretLocation:
    """A secret, and the object that it is in.

    Attributes:
        name: the worker's name of it.
        object: the Secret's name.
        key: in it; empty where the workflow has no entry for it, which a cluster refuses.
    """

    name: str
    object: str
    key: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the form in a plan: ``NAME``, or ``NAME=OBJECT/KEY``."""
        name, _, place = text.partition("=")
        if not place:
            return cls(name, name.lower().replace("_", "-"))
        found, _, key = place.partition("/")
        return cls(name, found, key)


@dataclass(frozen=True, slots=True)
class SecretValue:
    """A secret's value, and the hosts that it may be sent to.

    Attributes:
        value: the text; never printed.
        hosts: hosts, ``*.suffix`` for the hosts below a domain, or ``*`` for any.
    """

    value: str = field(repr=False)
    hosts: tuple[str, ...]


def with_place(name: str, places: Mapping[str, SecretKey]) -> str:
    """Returns a secret's name as in a plan: with its place where the workflow gives one."""
    given = places.get(name)
    return name if given is None else f"{name}={given.name}/{given.key}"
