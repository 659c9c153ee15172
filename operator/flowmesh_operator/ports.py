"""What the operator's controllers need of the leading control plane.

They see values, never the machine or its state. The leader passes in what the control plane offers
(``ControlPlaneServices``).
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol

from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.runs import RunAccepted, RunStatus
from flowmesh_control.autoscaling.worker_fleet import ConnectedWorker
from flowmesh_control.queries.live_runs import RunTerms
from flowmesh_control.runs.admission import Submission
from flowmesh_core.autoscaling.backlog import Backlog
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.sharing import ScopePlan
from flowmesh_core.units import Digest


class RunReader(Protocol):
    """Knows the runs."""

    def live_uids(self) -> Set[str]:
        """Returns the uids of all runs that have not ended, those that wait for an engine too."""
        ...

    async def status(self, uid: str) -> RunStatus:
        """Returns a run's status, live or ended.

        Raises:
            NotFoundError: there is no such run.
        """
        ...

    def terms(self, uid: str) -> RunTerms | None:
        """Returns the terms of a run under way; None where it waits for an engine or has ended."""
        ...


class RunWriter(Protocol):
    """Changes runs, whether they wait or are under way."""

    async def submit(self, submission: Submission) -> RunAccepted:
        """Accepts a workflow.

        Raises:
            SpecError: everything that is wrong with it.
            InvalidReferenceError: it names content that the namespace may not read.
            StoreError: it could not be written; nothing was accepted.
        """
        ...

    async def amend(self, uid: str, changes: dict[str, Any]) -> None:
        """Changes the terms of a run under way.

        Raises:
            ConflictError: it waits for an engine.
        """
        ...

    async def cancel(self, uid: str, reason: str) -> None:
        """Stops a run that has not ended.

        Raises:
            StoreError: the wish could not be written; call it again.
        """
        ...


class RunChanges(Protocol):
    """Says which runs have changed."""

    def all(self) -> AsyncIterator[str]:
        """Yields the uid of every run that changes from now on."""
        ...


class WorkerFleet(Protocol):
    """Shows workers, and brings cordons and prewarming to a wanted level."""

    def workers(self, pool: str) -> Sequence[ConnectedWorker]:
        """Returns the connected workers of a pool."""
        ...

    async def cordon(self, names: frozenset[str]) -> None:
        """Makes these the only workers that take nothing new."""
        ...

    async def prewarm(self, plan: Mapping[str, tuple[Digest, ...]]) -> None:
        """Makes workers, by name, hold the engines of these signatures open, and no others."""
        ...


class CapacitySignals(Protocol):
    """Says what work each pool has before it."""

    def declare(self, pools: Callable[[], Sequence[PoolView]]) -> None:
        """Registers what says which pools there are, with or without workers."""
        ...

    def now(self) -> Mapping[str, Backlog]:
        """Returns every pool's backlog."""
        ...

    def prewarm_plan(self) -> Mapping[str, tuple[Digest, ...]]:
        """Returns the signatures whose engines each worker should hold open."""
        ...


class Epoch(Protocol):
    """The leadership of this control plane."""

    @property
    def number(self) -> int:
        """Counts leaderships of this store."""
        ...

    def now_s(self) -> float:
        """Returns seconds since the epoch of UTC, by the control plane's clock."""
        ...

    def is_steady(self) -> bool:
        """Returns whether workers of the epoch before have had their time to come back."""
        ...


class CachePolicies(Protocol):
    """The cache policies that hold."""

    def scopes(self, namespace: str, labels: dict[str, str] | None = None) -> ScopePlan:
        """Returns where a namespace publishes and looks.

        Raises:
            SpecError: two policies contradict each other.
        """
        ...

    async def replace_all(self, policies: Iterable[CachePolicy]) -> None:
        """Makes these the only policies.

        Raises:
            StoreError: they cannot be stored.
        """
        ...


class StatusStore(Protocol):
    """Stores whole statuses of ended runs."""

    async def store(self, run: RunStatus, labels: Mapping[str, str]) -> str:
        """Returns the reference by which its namespace, which has these labels, reads it.

        Raises:
            StoreError: it could not be stored.
        """
        ...
