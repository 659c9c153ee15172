"""Where secrets are kept, and how a plan carries that to whoever reads them.

Inputs and steps name secrets by what the worker knows them as (``HF_TOKEN``). Only a cluster keeps
them in objects: ``spec.secrets`` says in which, and the compiler writes it behind the name, so that
the reader needs nothing but the name it is given. No secret is part of an action's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from flowmesh_core.spec.fields import ObjectKey, ObjectName, SpecModel


class SecretKey(SpecModel):
    """One key of a Secret."""

    name: ObjectName = Field(description="The Secret, in the workflow's namespace.")
    key: ObjectKey = Field(description="The key in it.")


@dataclass(frozen=True, slots=True)
class SecretLocation:
    """A secret, and the object that holds it.

    Attributes:
        name: what the worker knows it as.
        object: the Secret's name.
        key: in it; empty where the workflow does not say: the key ``name``, or the only one.
    """

    name: str
    object: str
    key: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads what a plan carries: ``NAME``, or ``NAME=OBJECT/KEY``."""
        name, _, place = text.partition("=")
        if not place:
            return cls(name, name.lower().replace("_", "-"))
        found, _, key = place.partition("/")
        return cls(name, found, key)


def with_place(name: str, places: Mapping[str, SecretKey]) -> str:
    """A secret's name as plans carry it: with its place where the workflow gives one."""
    given = places.get(name)
    return name if given is None else f"{name}={given.name}/{given.key}"
