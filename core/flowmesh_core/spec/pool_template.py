"""The part of the pod template that a pool may change, beyond its own fields.

Limited so that a pool cannot loosen the security of its pods (user, capabilities, token, network):
only the fields listed here are allowed, and the operator merges them into the template that it
builds.
"""

from typing import Any, Literal

from pydantic import Field

from flowmesh_core.spec.fields import ObjectName, SpecModel

WORKER_CONTAINER = "worker"


class Toleration(SpecModel):
    """A taint that the pods tolerate."""

    key: str = Field(
        default="", max_length=317, description="The key of the taint; all keys if empty."
    )
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="Equal compares the value; Exists ignores it."
    )
    value: str = Field(default="", max_length=63, description="The value of the taint, for Equal.")
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="", description="The effect of the taint; all effects if empty."
    )
    toleration_seconds: int | None = Field(
        default=None,
        ge=0,
        description="For NoExecute: how long to tolerate the taint; forever without it.",
    )


class TemplateMetadata(SpecModel):
    """Labels and annotations of the pods, besides the operator's own."""

    labels: dict[str, str] = Field(default={}, max_length=32, description="Labels.")
    annotations: dict[str, str] = Field(default={}, max_length=32, description="Annotations.")


class TemplateContainer(SpecModel):
    """Fields merged into the worker's container."""

    name: Literal["worker"] = Field(
        default="worker", description="The container to merge into; only worker is allowed."
    )
    env: list[dict[str, Any]] = Field(
        default=[], max_length=64, description="Environment variables, merged by name."
    )
    env_from: list[dict[str, Any]] = Field(
        default=[],
        max_length=16,
        description="Secrets and ConfigMaps from which to take environment variables.",
    )
    volume_mounts: list[dict[str, Any]] = Field(
        default=[], max_length=32, description="Volume mounts, merged by mountPath."
    )
    resources: dict[str, Any] | None = Field(
        default=None, description="Requests and limits that replace those of spec.resources."
    )


class TemplateSpec(SpecModel):
    """The fields of the pods' spec that a pool may set, as in Kubernetes."""

    affinity: dict[str, Any] | None = Field(
        default=None,
        description="Affinity; its required node terms apply in addition to those of spec.devices.",
    )
    topology_spread_constraints: list[dict[str, Any]] = Field(
        default=[], max_length=8, description="How the pods are spread over nodes and zones."
    )
    priority_class_name: ObjectName | None = Field(
        default=None, description="The PriorityClass of the pods."
    )
    runtime_class_name: ObjectName | None = Field(
        default=None, description="The RuntimeClass of the pods."
    )
    scheduler_name: ObjectName | None = Field(
        default=None, description="The scheduler of the pods, if not the default one."
    )
    host_aliases: list[dict[str, Any]] = Field(
        default=[], max_length=32, description="Entries of /etc/hosts."
    )
    dns_policy: str | None = Field(default=None, description="The DNS policy of the pods.")
    dns_config: dict[str, Any] | None = Field(
        default=None, description="The DNS configuration of the pods."
    )
    supplemental_groups: list[int] = Field(
        default=[],
        max_length=16,
        description="Further groups of the worker's user, for access to shared volumes.",
    )
    volumes: list[dict[str, Any]] = Field(
        default=[], max_length=32, description="Additional volumes, merged by name."
    )
    containers: list[TemplateContainer] = Field(
        default=[], max_length=1, description="Fields merged into the worker's container."
    )


class PodTemplate(SpecModel):
    """Fields to merge into the pod template that the operator builds."""

    metadata: TemplateMetadata = Field(
        default=TemplateMetadata(), description="Labels and annotations of the pods."
    )
    spec: TemplateSpec = Field(
        default=TemplateSpec(), description="The part of the pods' spec to merge."
    )
