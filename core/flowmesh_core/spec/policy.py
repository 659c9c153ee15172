"""``FlowMeshCachePolicy``: an administrator's rule for which namespaces share results."""

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from flowmesh_api.v1.enums import Disclosure, PrefixCache, Sharing
from flowmesh_api.v1.fabric import CachePolicy, Verify
from flowmesh_core.spec.error_messages import RULE
from flowmesh_core.spec.fields import (
    Name,
    SpecModel,
    TrustLevel,
    cel_rules,
)
from flowmesh_core.spec.limits import DurationLimit
from flowmesh_core.spec.metadata import Metadata
from flowmesh_core.spec.namespaces import SelectedNamespaces
from flowmesh_core.spec.policy_status import FlowMeshCachePolicyStatus
from flowmesh_core.spec.quantities import seconds

_GROUP_RULE = "group is required where scope is group, and allowed nowhere else"


class VerifySpec(SpecModel):
    """Which results are made again, on another worker, and compared."""

    sample: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="The share of the results that promise to repeat (exact, and seeded with batch"
        " invariance) that is made again on another worker, where one can, and compared. The fabric"
        " pays. No worker can foresee which.",
    )
    min_trust: TrustLevel = Field(
        default=0, description="The least trust of the pools that make them again."
    )


class CachePolicySpec(SpecModel):
    """With which namespaces the selected ones share results."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(("(self.scope == 'group') == has(self.group)", _GROUP_RULE))
    )

    scope: Literal["private", "group", "all"] = Field(
        description="private: not shared; group: with the namespaces of the same group; all: with"
        " every namespace whose scope is all."
    )
    group: Name | None = Field(default=None, description="The group, where the scope is group.")
    namespaces: SelectedNamespaces = Field(description="The namespaces that the policy is for.")
    salt: str = Field(
        default="",
        max_length=256,
        description="A text that is hashed into the names of their actions; a new one starts their"
        " cache anew.",
    )
    ttl: DurationLimit | None = Field(
        default=None, description="How long their results stay valid, such as 30d."
    )
    reference_generation: int = Field(
        default=0,
        ge=0,
        le=2**31 - 1,
        description="Raising it voids every reference of the scope, for example when a namespace"
        " leaves the group; outputs show new ones.",
    )
    prefix_cache: Literal["private", "shared"] = Field(
        default="private",
        description="private: each namespace has prefix caches of its own; shared: one for the"
        " scope, whose speed shows which prompts other namespaces of it sent.",
    )
    disclosure: Literal["open", "unattributed"] | None = Field(
        default=None,
        description="open: runs name the runs of other namespaces that they share results with;"
        " unattributed: they name none, and plan counts no results of other namespaces. By default"
        " unattributed where the scope is all. A scope of several policies has the stricter one.",
    )
    min_trust: TrustLevel | None = Field(
        default=None,
        description="The least trust of the pools that may make results for the scope. Default 0"
        " where the scope is private, else 1. Of several policies of one scope the highest counts.",
    )
    verify: VerifySpec = Field(
        default_factory=VerifySpec,
        description="Which results are made again and compared. Of several policies of one scope"
        " the highest values count.",
    )

    @model_validator(mode="after")
    def _group(self) -> Self:
        if (self.scope == "group") != (self.group is not None):
            raise PydanticCustomError(RULE, _GROUP_RULE)
        return self


class FlowMeshCachePolicy(SpecModel):
    """Decides where namespaces publish results and where they look for them."""

    api_version: Literal["flowmesh.dev/v1alpha1"] = Field(description="The API's version.")
    kind: Literal["FlowMeshCachePolicy"] = Field(description="The kind of object.")
    metadata: Metadata = Field(description="Names the object; it has no namespace.")
    spec: CachePolicySpec = Field(description="The rule.")
    status: FlowMeshCachePolicyStatus | None = Field(
        default=None, description="Written by the operator."
    )

    def rule(self) -> CachePolicy:
        """Returns the policy in the form of the sharing rules."""
        return CachePolicy(
            name=self.metadata.name,
            scope=Sharing(self.spec.scope),
            group=self.spec.group or "",
            namespaces=tuple(self.spec.namespaces.names),
            labels=self.spec.namespaces.labels,
            salt=self.spec.salt,
            ttl_s=seconds(self.spec.ttl) if self.spec.ttl else None,
            reference_generation=self.spec.reference_generation,
            prefix_cache=PrefixCache(self.spec.prefix_cache),
            disclosure=Disclosure(self.spec.disclosure) if self.spec.disclosure else None,
            min_trust=self.spec.min_trust,
            verify=Verify(self.spec.verify.sample, self.spec.verify.min_trust),
        )
