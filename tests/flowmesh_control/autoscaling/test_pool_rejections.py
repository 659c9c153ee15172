"""Why actions wait where pools can grow: for a worker that can start, or for a pool that could."""

from dataclasses import replace

import pytest
from tests.flowmesh_core.placement.builders import action, signature, snapshot, worker

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_control.autoscaling.pool_rejections import explain_with_pools
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Decision, Snapshot, WorkerView
from flowmesh_core.fleet.worker_bounds import WorkerUse
from flowmesh_core.placement import decide

LLM = signature("llm", memory_mib=4000)


QUOTA = RejectionCause.WORKER_QUOTA


def wanted_by(*namespaces: str) -> ReadyAction:
    """An action of namespaces that all have a bound of workers."""
    return action("a", LLM, bounded_tenants=frozenset(namespaces))


def pool(name: str, memory_mib: int, maximum: int = 3) -> PoolView:
    return PoolView(name, worker("any", pool=name, memory_mib=memory_mib).shape, maximum=maximum)


def decided(*workers: WorkerView) -> tuple[Decision, Snapshot]:
    seen = snapshot(list(workers), [action("a", LLM)], [LLM])
    return decide(seen, CostModel()), seen


def reason(*pools: PoolView, workers: tuple[WorkerView, ...] = ()) -> tuple[RejectionCause, str]:
    (found,) = explain_with_pools(pools, *decided(*workers)).rejections
    return found.cause, found.detail


@pytest.mark.parametrize("workers", [(), (worker("small", memory_mib=10),)])
def test_a_pool_that_can_start_a_worker_is_named(workers: tuple[WorkerView, ...]) -> None:
    cause, text = reason(pool("small", 10), pool("large", 8000), workers=workers)
    assert cause is RejectionCause.NO_WORKERS
    assert "a worker of pool large can run it once it has started" in text


def test_a_namespace_that_uses_all_its_workers_waits_for_its_quota_not_for_a_pool_to_grow() -> None:
    seen = snapshot([worker("small", memory_mib=10)], [wanted_by("a")], [LLM])
    for used, cause in ((("v",), RejectionCause.NO_WORKERS), (("v", "w"), QUOTA)):
        at_bound = replace(seen, worker_uses={"a": WorkerUse(frozenset(used), 2)})
        decision = decide(at_bound, CostModel())
        (found,) = explain_with_pools([pool("large", 8000)], decision, at_bound).rejections
        assert found.cause is cause
    assert "namespace a uses 2 of at most 2 workers" in found.detail
    assert "larger workers in the quota" in found.detail
    (found,) = explain_with_pools([pool("small", 10)], decision, at_bound).rejections
    assert found.cause is RejectionCause.MEMORY, "a larger quota would not help"


def test_what_namespaces_wait_for_together_waits_for_the_quota_only_if_all_are_at_it() -> None:
    both = snapshot([], [wanted_by("a", "b")], [LLM])
    full = {"a": WorkerUse(frozenset({"v"}), 1), "b": WorkerUse(frozenset(), 1)}
    for uses, cause in (
        (full, RejectionCause.NO_WORKERS),
        (full | {"b": WorkerUse(frozenset({"w"}), 1)}, QUOTA),
    ):
        seen = replace(both, worker_uses=uses)
        decision = decide(seen, CostModel())
        (found,) = explain_with_pools([pool("large", 8000)], decision, seen).rejections
        assert found.cause is cause


def test_a_pool_with_a_maximum_of_zero_is_named_with_the_remedy() -> None:
    assert "raise its maxReplicas" in reason(pool("large", 8000, maximum=0))[1]


def test_a_pool_whose_workers_do_not_start_is_named_with_where_to_look() -> None:
    short = replace(pool("large", 8000), supply=0)
    assert "none has started for some time" in reason(short)[1]
    assert "none has come" not in reason(short, pool("other", 8000))[1]


def test_if_no_pool_can_run_an_action_the_reason_names_what_is_missing() -> None:
    cause, text = reason(pool("small", 10), pool("less", 5))
    assert cause is RejectionCause.MEMORY
    assert "the largest has 10 MiB" in text
    assert "on one machine free memory and start fmesh again" in text


def test_without_pools_the_schedulers_decision_is_unchanged() -> None:
    decision, seen = decided()
    assert explain_with_pools((), decision, seen) is decision


def test_an_action_in_backoff_keeps_its_own_reason() -> None:
    seen = snapshot([worker("w")], [action("a", LLM, not_before_s=1e12)], [LLM])
    decision = decide(seen, CostModel())
    assert explain_with_pools([pool("large", 8000)], decision, seen) == decision


def test_a_pool_that_is_reserved_for_others_is_named_with_the_remedy() -> None:
    seen = replace(snapshot([], [action("a", LLM)], [LLM]), reserved_pools=frozenset({"ours"}))
    (found,) = explain_with_pools([pool("ours", 8000)], decide(seen, CostModel()), seen).rejections
    assert found.cause is RejectionCause.RESERVED
    assert "reservedFor" in found.detail
    admitted = action("a", LLM, reserved_pools=frozenset({"ours"}))
    seen = replace(snapshot([], [admitted], [LLM]), reserved_pools=frozenset({"ours"}))
    (found,) = explain_with_pools([pool("ours", 8000)], decide(seen, CostModel()), seen).rejections
    assert found.cause is RejectionCause.NO_WORKERS
