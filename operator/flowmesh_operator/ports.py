"""Ports of the operator's controllers to the leader's control plane.

They exchange values and never see the state machine. The leader passes the implementations of
``ControlPlaneServices``.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol

from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.quotas import Quota
from flowmesh_api.v1.runs import RunAccepted, RunStatus
from flowmesh_api.v1.services import ServiceApplication, ServiceStatus
from flowmesh_control.autoscaling.worker_fleet import ConnectedWorker
from flowmesh_control.queries.live_runs import RunTerms
from flowmesh_control.records.service_records import ServiceRecord
from flowmesh_control.runs.admission import Submission
from flowmesh_core.autoscaling.backlog import Backlog
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.sharing import ScopePlan
from flowmesh_core.units import Digest


class RunReader(Protocol):
    """Reads runs."""

    def live_uids(self) -> Set[str]:
        """Returns the uids of all runs that have not ended, with those that wait for an engine."""
        ...

    async def status(self, uid: str) -> RunStatus:
        """Returns a run's status, live or ended.

        Raises:
            NotFoundError: the run does not exist.
        """
        ...

    def terms(self, uid: str) -> RunTerms | None:
        """Returns the terms of an active run; None where it waits for an engine or has ended."""
        ...


class RunWriter(Protocol):
    """Submits, amends and cancels runs."""

    async def submit(self, submission: Submission) -> RunAccepted:
        """Accepts a workflow.

        Raises:
            SpecError: the workflow is invalid; lists every problem.
            InvalidReferenceError: it refers to content that the namespace may not read.
            UnplaceableError: no worker can ever run a step, as the pools are now.
            PlanRefusedError: more is expected than its budget or deadline allows.
            QuotaExceededError: its namespace has too much under way, or it is too large.
            StoreError: the run could not be written and is not accepted.
        """
        ...

    async def amend(self, uid: str, changes: dict[str, Any]) -> None:
        """Changes the terms of an active run.

        Raises:
            ConflictError: the run waits for an engine.
        """
        ...

    async def cancel(self, uid: str, reason: str) -> None:
        """Stops a run that has not ended.

        Raises:
            StoreError: the request could not be written; call it again.
        """
        ...


class AvailableQuota(Protocol):
    """Says whether the quota of a namespace leaves room for a further run."""

    def check(self, namespace: str) -> None:
        """Refuses a further run where the quota is used up.

        Raises:
            QuotaExceededError: with what the namespace has, and may have.
        """
        ...

    def available(self, namespace: str) -> int:
        """Returns how many further runs would be accepted now."""
        ...


class RunChanges(Protocol):
    """Notifies about changed runs."""

    def all(self) -> AsyncIterator[str]:
        """Yields the uid of every run that changes from now on."""
        ...


class WorkerFleet(Protocol):
    """Lists workers, and sets which are cordoned and what they prewarm."""

    def workers(self, pool: str) -> Sequence[ConnectedWorker]:
        """Returns the connected workers of a pool."""
        ...

    async def cordon(self, names: frozenset[str]) -> None:
        """Cordons these workers and no others."""
        ...

    async def prewarm(self, plan: Mapping[str, tuple[Digest, ...]]) -> None:
        """Sets the signatures whose engines each worker, by name, prewarms."""
        ...


class PoolReservations(Protocol):
    """Sets which pools are reserved."""

    async def reserve(self, pools: Mapping[str, frozenset[str]]) -> None:
        """Makes these the only reserved pools, each with the namespaces that it admits."""
        ...


class CapacitySignals(Protocol):
    """Predicts the work of each pool."""

    def declare(self, pools: Callable[[], Sequence[PoolView]]) -> None:
        """Registers the function that lists the pools, with or without workers."""
        ...

    def now(self) -> Mapping[str, Backlog]:
        """Returns every pool's backlog."""
        ...

    def prewarm_plan(self) -> Mapping[str, tuple[Digest, ...]]:
        """Returns the signatures whose engines each worker should prewarm."""
        ...


class Epoch(Protocol):
    """The leadership of this control plane."""

    @property
    def number(self) -> int:
        """The count of leaderships of this store."""
        ...

    def now_s(self) -> float:
        """Returns seconds since 1970 in UTC, by the control plane's clock."""
        ...

    def is_steady(self) -> bool:
        """Returns whether the time for workers to reconnect after a takeover is over."""
        ...


class ServiceStore(Protocol):
    """The control plane's services."""

    def all(self) -> Sequence[ServiceRecord]:
        """Returns the services."""
        ...

    def get(self, namespace: str, name: str) -> ServiceRecord:
        """Returns a service.

        Raises:
            NotFoundError: there is none of that name.
        """
        ...

    async def apply(
        self, application: ServiceApplication, labels: Mapping[str, str], object_uid: str
    ) -> ServiceRecord:
        """Creates a service, or gives it another content; an equal one is left as it is.

        Raises:
            SpecError: everything that is wrong with it.
            ConflictError: its namespace has too many.
            StoreError: it could not be written.
        """
        ...

    async def remove(self, namespace: str, name: str) -> None:
        """Deletes a service.

        Raises:
            NotFoundError: there is none of that name.
            StoreError: that could not be written.
        """
        ...


class ServiceStatuses(Protocol):
    """Shows services."""

    def status(self, service: ServiceRecord) -> ServiceStatus:
        """Returns the status of a service."""
        ...


class CachePolicies(Protocol):
    """The cache policies in force."""

    def scopes(self, namespace: str, labels: dict[str, str] | None = None) -> ScopePlan:
        """Returns the scopes in which a namespace publishes and looks up results.

        Raises:
            SpecError: two policies contradict each other.
        """
        ...

    async def replace_all(self, policies: Iterable[CachePolicy]) -> None:
        """Replaces all policies.

        Raises:
            StoreError: the policies cannot be stored.
        """
        ...


class NamespaceQuotas(Protocol):
    """The quotas in force."""

    async def replace_all(
        self, quotas: Sequence[Quota], labels: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Replaces all quotas; ``labels`` are those of every namespace."""
        ...


class StatusStore(Protocol):
    """Stores the whole statuses of ended runs."""

    async def store(self, run: RunStatus, labels: Mapping[str, str]) -> str:
        """Stores a status; returns the reference for its namespace, which has these labels.

        Raises:
            StoreError: the status could not be stored.
        """
        ...
