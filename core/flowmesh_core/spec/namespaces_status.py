"""The status of an object that selects namespaces, as the operator writes it."""

from pydantic import Field

from flowmesh_core.spec.fields import SpecModel
from flowmesh_core.spec.status import Condition

NAMESPACES_SHOWN = 100


class NamespacesStatus(SpecModel):
    """What the operator knows about such an object; its kinds describe number and conditions."""

    covered: int
    namespaces: list[str] = Field(
        default=[],
        max_length=NAMESPACES_SHOWN,
        description=f"The first {NAMESPACES_SHOWN} of these namespaces, by name.",
    )
    observed_generation: int = Field(
        default=0, description="The generation of the spec that was last read."
    )
    epoch: int = Field(default=0, description="The epoch of the leader that wrote this.")
    conditions: list[Condition]
