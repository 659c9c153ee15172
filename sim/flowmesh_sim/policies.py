"""Who decides: the shipped scheduler, or something to compare it with.

A policy sees what ``decide`` sees and, read only, the machine's state behind it, so that a baseline
may go by whole workflows. What it returns is applied by the same machine: constraints, money and
recovery are the same for all.
"""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from flowmesh_core.costmodel import CostKey, CostModel
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Decision, Placement, Snapshot, UtilityTerms
from flowmesh_core.run.state import State
from flowmesh_core.scheduler import decide
from flowmesh_core.scheduler.accounts import WorkerAccount, open_accounts
from flowmesh_core.scheduler.constraints import unmet
from flowmesh_core.spec.nearest import did_you_mean
from flowmesh_core.units import Digest


class Policy(Protocol):
    """Decides on a snapshot."""

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Placements of ready actions; the state is to be read only."""
        ...


class Shipped:
    """The scheduler that ships."""

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """As :func:`flowmesh_core.scheduler.decide`."""
        del state
        return decide(snapshot, model)


class Fifo:
    """First come, first fit: actions in order of readiness, each to the first worker with room."""

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Places in order; who does not fit keeps nobody else back."""
        del state
        accounts = open_accounts(snapshot.workers)
        batches: dict[tuple[str, Digest], list[ReadyAction]] = {}
        full = Counter[Digest]()
        for action in sorted(snapshot.ready, key=lambda a: (a.ready_s, a.action_id)):
            if action.not_before_s > snapshot.now_s or full[action.signature]:
                continue
            account = _first(accounts, snapshot, action)
            if account is None:
                full[action.signature] += not action.isolate
                continue
            account.take(snapshot.signatures[action.signature], alone=action.isolate)
            batches.setdefault((account.view.name, action.signature), []).append(action)
        shapes = {w.name: w.shape for w in snapshot.workers}
        return Decision(
            tuple(
                placed(worker, batch, snapshot, model, shapes[worker].device_class)
                for (worker, _), batch in batches.items()
            ),
            (),
        )


def _first(
    accounts: list[WorkerAccount], snapshot: Snapshot, action: ReadyAction
) -> WorkerAccount | None:
    info = snapshot.signatures[action.signature]
    for account in accounts:
        if account.view.draining or account.view.name == action.replica_of:
            continue
        if unmet(info.requirement, account.view.shape) is None:
            tier = account.place_tier(info, alone=action.isolate)
            if tier is not None and tier < 2:  # noqa: PLR2004 - a place that runs or queues
                return account
    return None


def placed(
    worker: str, batch: list[ReadyAction], snapshot: Snapshot, model: CostModel, device_class: str
) -> Placement:
    """A batch's placement with what the cost model predicts of it; for baselines."""
    info = snapshot.signatures[batch[0].signature]
    price = next(w.shape.price_nanousd_per_hour for w in snapshot.workers if w.name == worker)
    at_once = float(min(info.capacity, len(batch)))
    predictions = [
        model.predict(CostKey.of(info), device_class, a.work, batch=at_once) for a in batch
    ]
    return Placement(
        worker=worker,
        signature=info.signature,
        actions=tuple(a.action_id for a in batch),
        terms=UtilityTerms(0.0, 0.0, 0.0, 0.0, 0.0, predictions[0].seconds, 0),
        predicted_s=tuple(p.seconds for p in predictions),
        reserve_nanousd=tuple(p.p95_nanousd(price) for p in predictions),
    )


POLICIES: dict[str, Callable[[], Policy]] = {"shipped": Shipped, "fifo": Fifo}


def policy_named(name: str) -> Policy:
    """A policy by its name.

    Raises:
        FlowMeshError: there is none.
    """
    if name not in POLICIES:
        raise FlowMeshError(f"no policy {name!r}{did_you_mean(name, POLICIES)}", where="policy")
    return POLICIES[name]()
