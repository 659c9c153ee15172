"""The part of ``metadata`` that a file may have, and what the API server adds to it."""

from typing import Any

from pydantic import Field

from flowmesh_core.spec.fields import Namespace, ObjectName, SpecModel


class Metadata(SpecModel):
    """The metadata of an object."""

    name: ObjectName = Field(description="The object's name.")
    labels: dict[str, str] = Field(default={}, description="Labels.")
    annotations: dict[str, str] = Field(default={}, description="Annotations.")
    uid: str = Field(default="", description="Set by the API server.")
    resource_version: str = Field(default="", description="Set by the API server.")
    generation: int = Field(default=0, description="Set by the API server.")
    creation_timestamp: str | None = Field(default=None, description="Set by the API server.")
    deletion_timestamp: str | None = Field(default=None, description="Set by the API server.")
    deletion_grace_period_seconds: int | None = Field(
        default=None, description="Set by the API server."
    )
    finalizers: list[str] = Field(default=[], description="Set by controllers.")
    owner_references: list[dict[str, Any]] = Field(default=[], description="Set by controllers.")
    managed_fields: list[dict[str, Any]] = Field(default=[], description="Set by the API server.")
    self_link: str = Field(default="", description="Set by old API servers.")


class NamespacedMetadata(Metadata):
    """The metadata of an object in a namespace."""

    namespace: Namespace = Field(
        default="default",
        description="The namespace, which is the tenant; `fmesh run --namespace` overrides it.",
    )
