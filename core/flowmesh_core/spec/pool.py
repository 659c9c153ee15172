"""``FlowMeshWorkerPool``: workers of one shape, price and image, scaled together."""

import re
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from flowmesh_core.spec.error_messages import RULE
from flowmesh_core.spec.fields import (
    Cidr,
    Duration,
    EngineName,
    Memory,
    ObjectName,
    ResourceName,
    SpecModel,
    TrustLevel,
    Usd,
    cel_rules,
)
from flowmesh_core.spec.limits import DurationLimit
from flowmesh_core.spec.metadata import NamespacedMetadata
from flowmesh_core.spec.namespaces import SelectedNamespaces
from flowmesh_core.spec.pool_llm import PoolLlm
from flowmesh_core.spec.pool_status import PoolStatus
from flowmesh_core.spec.pool_template import PodTemplate, Toleration
from flowmesh_core.units import DEFAULT_TRUST

POOL_NAME_MAX = 40
CODE_TRUST = 1
"""The most that a pool may have that runs users' code outside of a sandbox."""
Flavor = Literal["cpu", "gpu", "thin"]
Mode = Literal["backlog", "hpa", "keda", "fixed"]

_BOUNDS_RULE = "minReplicas must not be greater than maxReplicas"
_FIXED_RULE = (
    "where autoscaling.mode is fixed, the pool has maxReplicas workers: leave minReplicas out, or"
    " give the same number"
)
_GPU_RULE = "engines.flavor gpu needs devices"
_LLM_RULE = (
    "llm.gpuMemoryUtilization, llm.enforceEager and llm.enableChunkedPrefill need devices: on CPUs"
    " there are no CUDA graphs, and prompts are not cut"
)
_IDLE_RULE = "idleWatts must not be greater than loadWatts"
_CACHE_RULE = "give sizeLimit or claimName, not both"
_CLAIM_RULE = (
    "a pool with cache.claimName has one worker at most: two would evict each other's files"
)
_RUNTIME_RULE = "give runtimeClassName in sandbox or in podTemplate.spec, not both"
_EGRESS_RULE = (
    "a pool with userCode has no egress: code of one tenant must not carry data outside; let"
    " imports and HTTP steps run in a pool without userCode"
)
_NAME_RULE = (
    f"a pool's name has at most {POOL_NAME_MAX} small letters, digits and -, a letter or digit at"
    " both ends: it is part of its pods' names"
)
_NAME = f"^[a-z0-9]([a-z0-9-]{{0,{POOL_NAME_MAX - 2}}}[a-z0-9])?$"
_CODE_TRUST_RULE = (
    "a pool with userCode has trust 1 at most, unless sandbox.runtimeClassName names a runtime that"
    " isolates"
)
_HIGHEST_TRUST_RULE = (
    "a pool of trust 3 has an image pinned by digest (…@sha256:…), no egress and no userCode"
)
_PINNED_IMAGE = "@sha256:[0-9a-f]{64}$"
_HAS_CODE = "(has(self.userCode) && self.userCode)"
_HAS_SANDBOX = (
    "((has(self.sandbox) && has(self.sandbox.runtimeClassName))"
    " || (has(self.podTemplate) && has(self.podTemplate.spec)"
    " && has(self.podTemplate.spec.runtimeClassName)))"
)
_MIN = "(has(self.minReplicas) ? self.minReplicas : 0)"
_MAX = "(has(self.maxReplicas) ? self.maxReplicas : 1)"


class EnginesSpec(SpecModel):
    """Which engines the image has, so that they are known before the pool has a worker."""

    flavor: Flavor | None = Field(
        default=None,
        description="The flavor that the image was built with; thin has only the engines that need"
        " no model library. The default is gpu if the pool has devices, otherwise cpu.",
    )
    plugins: list[EngineName] = Field(
        default=[],
        max_length=64,
        description="Engines from plugins in the image, in addition to those of the flavor.",
    )


class PoolResources(SpecModel):
    """What one worker may use of its node: both the requests and the limits of its pod."""

    cpu: float = Field(default=2, ge=0.1, le=1024, description="CPUs, such as 4 or 0.5.")
    memory: Memory = Field(
        default="8Gi",
        description="Host memory; engines may use all of it except the part of the worker agent.",
    )
    ephemeral_storage: Memory | None = Field(
        default=None,
        description="Limit of what the worker writes to the node's disk besides the cache.",
    )


class DevicesSpec(SpecModel):
    """The accelerators of one worker."""

    count: int = Field(default=1, ge=1, le=64, description="The number of devices of one worker.")
    product: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="The product in the node's label, such as NVIDIA-H200. Pods run only on nodes"
        " with this label, and the scheduler knows the pool's devices before it has a worker.",
    )
    memory: Memory | None = Field(
        default=None,
        description="Memory of one device. Give it for products that FlowMesh does not know, until"
        " the pool's first worker has reported it.",
    )
    resource_name: ResourceName = Field(
        default="nvidia.com/gpu",
        description="The extended resource by which nodes offer the devices.",
    )
    product_label: str = Field(
        default="nvidia.com/gpu.product",
        max_length=317,
        description="The node label that names the product.",
    )


class EgressSpec(SpecModel):
    """Addresses that the pods may reach in addition to the gateway, the bucket and DNS."""

    cidr: Cidr = Field(description="A range of IP addresses, such as 0.0.0.0/0 or 10.1.0.0/16.")
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(
        default=[], max_length=16, description="TCP ports; all ports if empty."
    )


class PriceSpec(SpecModel):
    """What one worker costs."""

    usd_per_hour: Usd = Field(
        description='Price of one worker in dollars per hour, such as "1.20".'
    )
    capacity: Literal["on-demand", "spot"] = Field(
        default="on-demand",
        description="spot: the provider may take a worker away at any time; placement takes the"
        " expected loss of work into account.",
    )


class PowerSpec(SpecModel):
    """Power draw of one worker without a meter; energy that follows from it is an estimate."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            ("!has(self.idleWatts) || self.idleWatts <= self.loadWatts", _IDLE_RULE)
        )
    )

    load_watts: float = Field(ge=0, le=100_000, description="Power draw under load.")
    idle_watts: float = Field(default=0, ge=0, le=100_000, description="Power draw without work.")

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.idle_watts > self.load_watts:
            raise PydanticCustomError(RULE, _IDLE_RULE)
        return self


class PoolCache(SpecModel):
    """Where workers store models and inputs: a new volume of a given size, or a claim."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(("!(has(self.sizeLimit) && has(self.claimName))", _CACHE_RULE))
    )

    size_limit: Memory | None = Field(
        default=None, description="Size of an emptyDir; 20Gi if neither field is given."
    )
    claim_name: ObjectName | None = Field(
        default=None,
        description="A PersistentVolumeClaim that outlives the pods, for a pool of one worker.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.size_limit is not None and self.claim_name is not None:
            raise PydanticCustomError(RULE, _CACHE_RULE)
        return self


class SandboxSpec(SpecModel):
    """How users' code is isolated from the node and from the code of other tenants."""

    minimum: Literal["weak", "landlock", "userns"] = Field(
        default="landlock",
        description="The weakest sandbox in which users' code may run; such steps wait for a worker"
        " that reports at least this level. userns: its own Linux namespaces; landlock: Linux 6.12"
        " or later with Landlock; weak: any.",
    )
    host_users: bool = Field(
        default=True,
        description="If false, the pods have a user namespace, in which the code of each tenant has"
        " its own uid. Otherwise, a worker runs the code of only one tenant for its whole life.",
    )
    runtime_class_name: ObjectName | None = Field(
        default=None,
        description="A RuntimeClass that isolates the pods, such as gVisor's. The workers report"
        " the sandbox level that they find inside it.",
    )


class PoolServing(SpecModel):
    """How the pool's workers serve stages of services."""

    peers: bool = Field(
        default=False,
        description="Whether the workers of this pool exchange values of stages directly with those"
        " of other such pools, over mutual TLS on a port of their pods. Otherwise, all values"
        " between workers pass through a router.",
    )


class AutoscalingSpec(SpecModel):
    """How the number of workers is decided."""

    mode: Mode = Field(
        default="backlog",
        description="What sets the number of workers. backlog: the operator, by predicted seconds"
        " of work; hpa, keda: a HorizontalPodAutoscaler or a ScaledObject, by the operator's"
        " metric; fixed: always maxReplicas.",
    )
    target_backlog: DurationLimit = Field(
        default="60s",
        description="Maximum predicted work ahead of one worker. The operator adds workers earlier"
        " if the time of the waiting users is worth more than the workers cost.",
    )
    scale_down_after: Duration | None = Field(
        default=None,
        description="How long fewer workers must have been enough before the pool shrinks, and the"
        " longest time for which unused engines keep a worker. If unset, 30s, and engines keep a"
        " worker as long as that costs less than loading them again.",
    )


class WorkerPoolSpec(SpecModel):
    """A kind of worker, and how many of them there may be."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (f"{_MIN} <= {_MAX}", _BOUNDS_RULE),
            (
                "!(has(self.autoscaling) && has(self.autoscaling.mode)"
                " && self.autoscaling.mode == 'fixed') || !has(self.minReplicas)"
                f" || self.minReplicas == {_MAX}",
                _FIXED_RULE,
            ),
            (
                "!(has(self.engines) && has(self.engines.flavor) && self.engines.flavor == 'gpu')"
                " || has(self.devices)",
                _GPU_RULE,
            ),
            (
                "has(self.devices) || !has(self.llm) || !(has(self.llm.gpuMemoryUtilization)"
                " || has(self.llm.enforceEager) || has(self.llm.enableChunkedPrefill))",
                _LLM_RULE,
            ),
            (f"!(has(self.cache) && has(self.cache.claimName)) || {_MAX} <= 1", _CLAIM_RULE),
            (
                "!(has(self.sandbox) && has(self.sandbox.runtimeClassName)"
                " && has(self.podTemplate) && has(self.podTemplate.spec)"
                " && has(self.podTemplate.spec.runtimeClassName))",
                _RUNTIME_RULE,
            ),
            (
                "!(has(self.userCode) && self.userCode) || !has(self.egress)"
                " || size(self.egress) == 0",
                _EGRESS_RULE,
            ),
            (
                f"!has(self.trust) || self.trust < 2 || !{_HAS_CODE} || {_HAS_SANDBOX}",
                _CODE_TRUST_RULE,
            ),
            (
                f"!has(self.trust) || self.trust < 3 || (!{_HAS_CODE}"
                f" && self.image.matches('{_PINNED_IMAGE}')"
                " && (!has(self.egress) || size(self.egress) == 0))",
                _HIGHEST_TRUST_RULE,
            ),
        )
    )

    image: str = Field(min_length=1, max_length=512, description="The image of the workers.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="When the image is pulled; by default as Kubernetes decides."
    )
    image_pull_secrets: list[ObjectName] = Field(
        default=[],
        max_length=16,
        description="Secrets in the pool's namespace with which to pull the image.",
    )
    engines: EnginesSpec = Field(default=EnginesSpec(), description="Which engines the image has.")
    min_replicas: int = Field(default=0, ge=0, le=10_000, description="Minimum number of workers.")
    max_replicas: int = Field(default=1, ge=0, le=10_000, description="Maximum number of workers.")
    resources: PoolResources = Field(
        default=PoolResources(), description="What one worker may use of its node."
    )
    devices: DevicesSpec | None = Field(
        default=None, description="The accelerators of one worker; without it, workers have none."
    )
    price: PriceSpec | None = Field(
        default=None,
        description="What one worker costs. Without it the price is 0, marked as an estimate.",
    )
    power: PowerSpec | None = Field(default=None, description="The power that one worker draws.")
    user_code: bool = Field(
        default=False, description="Whether steps that run users' code may run in this pool."
    )
    sandbox: SandboxSpec = Field(
        default=SandboxSpec(),
        description="How users' code is isolated, if it may run in this pool.",
    )
    reserved_for: SelectedNamespaces | None = Field(
        default=None,
        description="The namespaces for which the pool is reserved: only their actions run in it."
        " Without it, those of every namespace do. These namespaces may use other pools too.",
    )
    trust: TrustLevel | None = Field(
        default=None,
        description="How far results of the pool's workers are trusted. 0: machines of others; 1:"
        " users' code runs beside the worker; 2: your own machines; 3: an image pinned by digest,"
        " without egress and userCode. The default is 2, or 1 with userCode outside a sandbox.",
    )
    labels: dict[str, str] = Field(
        default={},
        max_length=32,
        description="Labels of the workers, which resources.labels of a step can require.",
    )
    node_selector: dict[str, str] = Field(
        default={}, max_length=32, description="Labels that a node must have."
    )
    tolerations: list[Toleration] = Field(
        default=[], max_length=32, description="Taints of nodes that the pods tolerate."
    )
    egress: list[EgressSpec] = Field(
        default=[],
        max_length=32,
        description="Addresses that imports and HTTP steps may reach; if empty, none outside the"
        " cluster. Addresses that are not public are excluded from wider ranges. Not allowed with"
        " userCode.",
    )
    pod_template: PodTemplate = Field(
        default=PodTemplate(),
        description="Fields to merge into the pod template, such as affinity.",
    )
    cache: PoolCache = Field(
        default=PoolCache(), description="Where workers store models and inputs."
    )
    drain_grace: Duration = Field(
        default="2m",
        description="How long a draining worker has to finish or checkpoint its attempts.",
    )
    autoscaling: AutoscalingSpec = Field(
        default=AutoscalingSpec(), description="How the number of workers is decided."
    )
    serving: PoolServing = Field(
        default=PoolServing(), description="How the pool's workers serve stages of services."
    )
    llm: PoolLlm | None = Field(
        default=None,
        description="How the pool's workers run vLLM. FlowMesh chooses values for fields that are"
        " left out.",
    )

    @model_validator(mode="after")
    def _rules(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise PydanticCustomError(RULE, _BOUNDS_RULE)
        given = "min_replicas" in self.model_fields_set
        fixed = self.autoscaling.mode == "fixed"
        if fixed and given and self.min_replicas != self.max_replicas:
            raise PydanticCustomError(RULE, _FIXED_RULE)
        if self.engines.flavor == "gpu" and self.devices is None:
            raise PydanticCustomError(RULE, _GPU_RULE)
        if self.llm is not None and self.llm.for_devices and self.devices is None:
            raise PydanticCustomError(RULE, _LLM_RULE)
        if self.cache.claim_name is not None and self.max_replicas > 1:
            raise PydanticCustomError(RULE, _CLAIM_RULE)
        if self.user_code and self.egress:
            raise PydanticCustomError(RULE, _EGRESS_RULE)
        if self.sandbox.runtime_class_name and self.pod_template.spec.runtime_class_name:
            raise PydanticCustomError(RULE, _RUNTIME_RULE)
        self._check_trust()
        return self

    def _check_trust(self) -> None:
        if self.trust is None:
            return
        if self.trust >= DEFAULT_TRUST and self._has_bare_code:
            raise PydanticCustomError(RULE, _CODE_TRUST_RULE)
        pinned = re.search(_PINNED_IMAGE, self.image)
        if self.trust > DEFAULT_TRUST and (self.user_code or self.egress or not pinned):
            raise PydanticCustomError(RULE, _HIGHEST_TRUST_RULE)

    @property
    def _has_bare_code(self) -> bool:
        """Whether users' code runs beside the worker without a sandbox of the runtime."""
        sandboxed = self.sandbox.runtime_class_name or self.pod_template.spec.runtime_class_name
        return self.user_code and not sandboxed

    @property
    def trust_level(self) -> int:
        """The trust of its workers, given or implied."""
        if self.trust is not None:
            return self.trust
        return CODE_TRUST if self._has_bare_code else DEFAULT_TRUST

    @property
    def flavor(self) -> Flavor:
        """The image's flavor, given or implied."""
        return self.engines.flavor or ("cpu" if self.devices is None else "gpu")

    @property
    def least(self) -> int:
        """The minimum number of workers."""
        return self.max_replicas if self.autoscaling.mode == "fixed" else self.min_replicas


class PoolMetadata(NamespacedMetadata):
    """Names a pool; it lives in the operator's namespace."""

    @model_validator(mode="after")
    def _short(self) -> Self:
        if len(self.name) > POOL_NAME_MAX or "." in self.name:
            raise PydanticCustomError(RULE, _NAME_RULE)
        return self


class FlowMeshWorkerPool(SpecModel):
    """Workers of one shape, price and image, scaled together."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules((f"self.metadata.name.matches('{_NAME}')", _NAME_RULE))
    )

    api_version: Literal["flowmesh.dev/v1alpha1"] = Field(description="The version of the API.")
    kind: Literal["FlowMeshWorkerPool"] = Field(description="The kind of object.")
    metadata: PoolMetadata = Field(description="The metadata of the pool.")
    spec: WorkerPoolSpec = Field(description="What its workers are and how many there may be.")
    status: PoolStatus | None = Field(default=None, description="Written by the operator.")
