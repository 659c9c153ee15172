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
    """Which results are computed again, on another worker, and compared."""

    sample: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="The share of deterministic results (exact, or seeded with batch invariance)"
        " that are computed again on another worker, if there is one that can, and compared. The"
        " fabric pays for it. Workers cannot predict which results are chosen.",
    )
    min_trust: TrustLevel = Field(
        default=0, description="Minimum trust of the pools that compute them again."
    )


class CachePolicySpec(SpecModel):
    """With which namespaces the selected namespaces share results."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(("(self.scope == 'group') == has(self.group)", _GROUP_RULE))
    )

    scope: Literal["private", "group", "all"] = Field(
        description="private: results are not shared; group: they are shared with the namespaces of"
        " the same group; all: with every namespace whose scope is all."
    )
    group: Name | None = Field(
        default=None, description="The name of the group; only with scope group."
    )
    namespaces: SelectedNamespaces = Field(
        description="The namespaces to which the policy applies."
    )
    salt: str = Field(
        default="",
        max_length=256,
        description="A string that is part of the identity of their actions. A new salt starts with"
        " an empty cache.",
    )
    ttl: DurationLimit | None = Field(
        default=None, description="How long their results are kept and reused, such as 30d."
    )
    reference_generation: int = Field(
        default=0,
        ge=0,
        le=2**31 - 1,
        description="Raising this number makes every reference of the scope invalid, for example"
        " when a namespace leaves the group. Outputs then show new references.",
    )
    prefix_cache: Literal["private", "shared"] = Field(
        default="private",
        description="private: each namespace has its own prefix caches; shared: the namespaces of"
        " the scope share one, whose response times can reveal which prompts other namespaces"
        " sent.",
    )
    disclosure: Literal["open", "unattributed"] | None = Field(
        default=None,
        description="open: runs name the runs of other namespaces with which they share results;"
        " unattributed: they name none, and a plan does not count results of other namespaces. The"
        " default is unattributed if the scope is all, otherwise open. If several policies have the"
        " same scope, the stricter value applies.",
    )
    min_trust: TrustLevel | None = Field(
        default=None,
        description="Minimum trust of the pools whose results the scope accepts. The default is 0"
        " if the scope is private, otherwise 1. If several policies have the same scope, the"
        " highest value applies.",
    )
    verify: VerifySpec = Field(
        default_factory=VerifySpec,
        description="Which results are computed again and compared. If several policies have the"
        " same scope, the highest values apply.",
    )

    @model_validator(mode="after")
    def _group(self) -> Self:
        if (self.scope == "group") != (self.group is not None):
            raise PydanticCustomError(RULE, _GROUP_RULE)
        return self


class FlowMeshCachePolicy(SpecModel):
    """Determines where namespaces publish results and where they look for them."""

    api_version: Literal["flowmesh.dev/v1alpha1"] = Field(description="The version of the API.")
    kind: Literal["FlowMeshCachePolicy"] = Field(description="The kind of object.")
    metadata: Metadata = Field(description="The object's metadata; it has no namespace.")
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
