"""A workflow object for which its namespace's quota has no room is suspended, then taken up."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from tests.attacks.by_hand import Place, noop, place, until
from tests.flowmesh_control.fabric import workflow

from flowmesh_api.v1.quotas import Quota
from flowmesh_core.status.conditions import WorkflowCondition, WorkflowReason
from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext
from flowmesh_operator.workflows import status_projection
from flowmesh_operator.workflows.conditions import not_accepted_yet
from flowmesh_operator.workflows.controller import WorkflowController
from flowmesh_operator.workflows.quota_waits import QuotaWaits

if TYPE_CHECKING:
    from flowmesh_operator.kube.client import KubeClient
    from flowmesh_operator.kube.informer_cache import InformerCache
    from flowmesh_operator.workflows.status_writer import StatusWriter


@dataclass
class Mirror:
    """A cache of workflows."""

    workflows: dict[str, Any]
    namespaces: dict[str, Any] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def exists(self, uid: str) -> bool:
        return uid in self.workflows


class Shown:
    """Keeps the last conditions of each workflow; None once it was accepted."""

    def __init__(self) -> None:
        self.last: dict[str, list[ConditionUpdate] | None] = {}

    def set_generation(self, uid: str, generation: int, said: Any = None) -> None:
        del generation
        self.last[uid] = said

    def forget(self, uid: str) -> None:
        self.last.pop(uid, None)


class NoConfigMaps:
    """Reads no ConfigMap."""

    async def store(self, obj: Any, scope: str) -> dict[str, str]:
        del obj, scope
        return {}


def obj(uid: str, **spec: Any) -> dict[str, Any]:
    document = workflow(uid, {**noop(uid), **spec})
    meta = {"uid": uid, "name": uid, "namespace": "team-b", "generation": 1}
    return {**document, "metadata": meta}


def controller_of(there: Place, mirror: Mirror, shown: Shown) -> WorkflowController:
    services = there.control.services
    return WorkflowController(
        cast("KubeClient", None),
        cast("InformerCache", mirror),
        runs=services.runs,
        commands=services.commands,
        changes=services.changes,
        policies=services.policies,
        quota=services.run_quota,
        epoch=services.epoch,
        writer=cast("StatusWriter", shown),
        config_maps=cast("Any", NoConfigMaps()),
    )


async def bound(there: Place, **limits: Any) -> None:
    quota = Quota(name="q", namespaces=("team-b",), **limits)
    await there.control.services.quotas.replace_all([quota], {"team-b": {}})


async def test_a_workflow_over_quota_waits_with_a_condition_and_starts_when_there_is_room() -> None:
    async with place() as there:
        await bound(there, unfinished_runs=1)
        mirror, shown = Mirror({uid: obj(uid) for uid in ("a", "b", "c")}), Shown()
        controller = controller_of(there, mirror, shown)
        for uid in mirror.workflows:
            await controller._reconcile(uid)
        live = there.control.services.runs.live_uids
        assert live() == {"a"}
        assert shown.last["a"] is None
        (accepted,) = shown.last["b"] or []
        assert accepted.type is WorkflowCondition.ACCEPTED
        assert accepted.reason is WorkflowReason.QUOTA_EXCEEDED
        assert "1 unfinished runs, of at most 1" in accepted.message
        serving = asyncio.create_task(controller._queue.serve(controller._reconcile))
        controller._quota_waits.take_up()
        await there.control.services.commands.cancel("a", "enough")
        await until(lambda: "a" not in live())
        controller._quota_waits.take_up()
        await until(lambda: live() == {"b"})
        assert shown.last["b"] is None
        assert shown.last["c"]
        serving.cancel()


async def test_a_workflow_that_is_too_large_is_refused() -> None:
    async with place() as there:
        await bound(there, steps_per_run=1)
        steps = [{"name": n, "uses": "test.noop", "with": {"value": n}} for n in "xy"]
        mirror, shown = Mirror({"a": obj("a", steps=steps)}), Shown()
        await controller_of(there, mirror, shown)._reconcile("a")
        accepted, failed = shown.last["a"] or []
        assert accepted.reason is failed.reason is WorkflowReason.QUOTA_EXCEEDED
        assert failed.holds


async def test_a_budget_that_cannot_be_met_is_refused_with_the_figures() -> None:
    async with place() as there:
        await there.join("w")
        spec = {"budgetUsd": "0.000000001"}
        mirror, shown = Mirror({"a": obj("a", **spec), "b": obj("b")}), Shown()
        controller = controller_of(there, mirror, shown)
        for uid in mirror.workflows:
            await controller._reconcile(uid)
        accepted, failed = shown.last["a"] or []
        assert (accepted.type, accepted.holds) == (WorkflowCondition.ACCEPTED, False)
        assert accepted.reason is failed.reason is WorkflowReason.UNMEETABLE
        assert ", and the budget is" in accepted.message
        assert shown.last["b"] is None
        assert there.control.services.runs.live_uids() == {"b"}


def test_the_phase_of_a_workflow_that_waits_for_room_is_suspended() -> None:
    said = not_accepted_yet(WorkflowReason.QUOTA_EXCEEDED, "no room")
    context = StatusContext(before={}, generation=1, epoch=1, now_s=0.0)
    assert status_projection.of_refusal(said, context)["phase"] == "Suspended"


def test_as_many_workflows_start_as_the_quota_allows_oldest_first() -> None:
    class Room:
        free = 2

        def check(self, namespace: str) -> None:
            del namespace

        def available(self, namespace: str) -> int:
            return self.free if namespace == "team-b" else 0

    retried = list[str]()
    waits = QuotaWaits(Room(), retried.append)
    for uid in ("a", "b", "c"):
        waits.add(uid, "team-b")
    waits.add("z", "team-a")
    waits.add("a", "team-b")
    waits.take_up()
    assert retried == ["a", "b"]
    waits.discard("a")
    waits.take_up()
    assert retried == ["a", "b", "b", "c"]
