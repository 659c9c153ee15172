"""``FlowMeshQuota``: what an administrator lets each of some namespaces have."""

from typing import Literal

from pydantic import Field

from flowmesh_api.v1.quotas import Quota
from flowmesh_core.spec.fields import SpecModel
from flowmesh_core.spec.metadata import Metadata
from flowmesh_core.spec.namespaces import SelectedNamespaces


class QuotaSpec(SpecModel):
    """The bounds and the weight of each selected namespace; a field left out has its default."""

    namespaces: SelectedNamespaces = Field(
        description="The namespaces that the quota is for, each by itself. Of several quotas the"
        " one that names the namespace applies, then one by label, then one for *."
    )
    weight: float = Field(
        default=1,
        ge=0.001,
        le=1000,
        description="The namespace's weight in fair shares: one of weight 3 gets three times what"
        " one of weight 1 gets where both wait for the same workers.",
    )


class FlowMeshQuota(SpecModel):
    """Bounds what namespaces ask for and weighs what they get."""

    api_version: Literal["flowmesh.dev/v1alpha1"] = Field(description="The API's version.")
    kind: Literal["FlowMeshQuota"] = Field(description="The kind of object.")
    metadata: Metadata = Field(description="Names the object; it has no namespace.")
    spec: QuotaSpec = Field(description="The quota.")

    def quota(self) -> Quota:
        """Returns the quota in the form of the control plane."""
        return Quota(
            name=self.metadata.name,
            namespaces=tuple(self.spec.namespaces.names),
            labels=self.spec.namespaces.labels,
            weight=self.spec.weight,
        )
