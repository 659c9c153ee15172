"""``FlowMeshQuota``: what an administrator lets each of some namespaces have."""

from typing import Literal

from pydantic import Field

from flowmesh_api.v1.quotas import Quota
from flowmesh_core.spec.fields import Memory, SpecModel, Usd
from flowmesh_core.spec.metadata import Metadata
from flowmesh_core.spec.namespaces import SelectedNamespaces
from flowmesh_core.spec.quantities import budget, byte_count
from flowmesh_core.spec.quota_status import FlowMeshQuotaStatus

STEPS_MAX = 100_000
"""Steps of any run (``graph.limits.Limits``); a quota may only lower it."""


class QuotaSpec(SpecModel):
    """The limits and the weight of each selected namespace; fields left out have their defaults."""

    namespaces: SelectedNamespaces = Field(
        description="The namespaces to which the quota applies, to each separately. If several"
        " quotas select a namespace, one that names it takes precedence, then one that selects it"
        " by label, then one for *."
    )
    weight: float = Field(
        default=1,
        ge=0.001,
        le=1000,
        description="The namespace's weight in fair sharing: when both wait for the same workers, a"
        " namespace of weight 3 gets three times as much as one of weight 1.",
    )
    unfinished_runs: int = Field(
        default=200,
        ge=0,
        le=100_000,
        description="Maximum number of unfinished runs. Further workflows are suspended until one"
        " ends.",
    )
    steps_per_run: int = Field(
        default=STEPS_MAX,
        ge=1,
        le=STEPS_MAX,
        description="Maximum number of steps of one run after expansion, including imports. A"
        " larger workflow is refused.",
    )
    actions_in_flight: int = Field(
        default=50_000,
        ge=1,
        le=1_000_000,
        description="Maximum number of actions that are being looked up, wait, run or are being"
        " published. While there are this many, further workflows are suspended.",
    )
    requests_per_second: float = Field(
        default=20,
        ge=0.1,
        le=10_000,
        description="Maximum rate of one user's requests to the API, on average.",
    )
    request_burst: int = Field(
        default=100,
        ge=1,
        le=100_000,
        description="Maximum number of requests that one user may send in a burst.",
    )
    submissions_per_minute: int = Field(
        default=60,
        ge=1,
        le=100_000,
        description="Runs, audits, services and batches that one user submits to the API in a"
        " minute; objects are not counted.",
    )
    plans_per_minute: int = Field(
        default=30,
        ge=1,
        le=100_000,
        description="Maximum number of forecasts (plans) that one user requests per minute.",
    )
    open_watches: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="Maximum number of runs that one user watches at the same time.",
    )
    open_uploads: int = Field(
        default=4, ge=1, le=1000, description="Maximum number of concurrent uploads of one user."
    )
    stored_bytes: Memory = Field(
        default="1Ti",
        description="Maximum size of the content in the namespace's own scope. Above it, uploads"
        " are refused and further workflows are suspended; from 110% on, no new attempt begins.",
    )
    uploaded_bytes_per_day: Memory = Field(
        default="100Gi", description="Maximum size of the namespace's uploads in 24 hours."
    )
    user_code_calls: int = Field(
        default=16,
        ge=0,
        le=100_000,
        description="Maximum number of concurrent attempts that run user code; others wait.",
    )
    workers: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="Maximum number of workers that run attempts of the namespace at the same time;"
        " an attempt that fits on none of them waits. Replicas of services do not count. No limit"
        " by default.",
    )
    usd_per_day: Usd | None = Field(
        default=None,
        description="Maximum cost in dollars of the namespace's runs in 24 hours, including what is"
        " reserved for running attempts. When it is reached, new attempts wait. No limit by"
        " default.",
    )


class FlowMeshQuota(SpecModel):
    """Limits what namespaces have in progress, use and request, and sets their weights."""

    api_version: Literal["flowmesh.dev/v1alpha1"] = Field(description="The version of the API.")
    kind: Literal["FlowMeshQuota"] = Field(description="The kind of object.")
    metadata: Metadata = Field(description="The object's metadata; it has no namespace.")
    spec: QuotaSpec = Field(description="The quota.")
    status: FlowMeshQuotaStatus | None = Field(default=None, description="Written by the operator.")

    def quota(self) -> Quota:
        """Returns the quota in the form of the control plane."""
        usd = self.spec.usd_per_day
        return Quota(
            name=self.metadata.name,
            namespaces=tuple(self.spec.namespaces.names),
            labels=self.spec.namespaces.labels,
            weight=self.spec.weight,
            unfinished_runs=self.spec.unfinished_runs,
            steps_per_run=self.spec.steps_per_run,
            actions_in_flight=self.spec.actions_in_flight,
            requests_per_second=self.spec.requests_per_second,
            request_burst=self.spec.request_burst,
            submissions_per_minute=self.spec.submissions_per_minute,
            plans_per_minute=self.spec.plans_per_minute,
            open_watches=self.spec.open_watches,
            open_uploads=self.spec.open_uploads,
            stored_bytes=byte_count(self.spec.stored_bytes),
            uploaded_bytes_per_day=byte_count(self.spec.uploaded_bytes_per_day),
            user_code_calls=self.spec.user_code_calls,
            workers=self.spec.workers,
            nanousd_per_day=None if usd is None else budget(usd),
        )
