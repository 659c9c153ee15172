from dataclasses import replace

import pytest
from msgspec import structs
from tests.flowmesh_core.placement.builders import (
    NOW_S,
    action,
    digest,
    lane,
    refused,
    signature,
    snapshot,
    where,
    worker,
)

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.costmodel import CostKey, CostModel
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import Tier
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.placement import candidates_of, decide
from flowmesh_core.protocol.messages import EngineVariant, EngineVersion

MODEL = {"model": 16_000_000_000}
LLM = signature("llm", capacity=4, components=MODEL, work_unit="tokens")
SQL = signature("sql", engine="data.sql", memory_mib=500)


def many(count, info, prefix="a", **fields):
    return [action(f"{prefix}{n:03d}x", info, **fields) for n in range(count)]


def test_an_empty_snapshot_gives_an_empty_decision():
    decision = decide(snapshot([], [], []), CostModel())
    assert decision.placements == ()
    assert decision.rejections == ()


def test_actions_of_one_signature_travel_in_one_batch():
    decision = decide(snapshot([worker("w")], many(3, LLM), [LLM]), CostModel())
    (placement,) = decision.placements
    assert placement.worker == "w"
    assert placement.actions == tuple(a.action_id for a in many(3, LLM))
    assert len(placement.predicted_s) == len(placement.reserve_nanousd) == 3
    assert all(s > 0 for s in placement.predicted_s)
    assert all(r > 0 for r in placement.reserve_nanousd)


def test_an_instance_is_filled_up_to_twice_its_capacity():
    decision = decide(snapshot([worker("w")], many(20, LLM), [LLM]), CostModel())
    assert len(where(decision)) == 8
    assert refused(decision) == {"busy": 12}


def test_an_open_instance_takes_only_as_many_actions_as_reach_twice_its_capacity():
    view = snapshot([worker("w", lane(LLM, assigned=6))], many(20, LLM), [LLM])
    assert len(where(decide(view, CostModel()))) == 2


def test_the_capacity_of_a_ready_instance_overrides_the_contracts():
    view = snapshot([worker("w", lane(LLM, capacity=1))], many(20, LLM), [LLM])
    assert len(where(decide(view, CostModel()))) == 2


def test_actions_of_many_sequences_fill_an_instance_sooner():
    rows = replace(LLM, capacity=32, sequences=100.0)
    view = snapshot([worker("w", lane(rows, capacity=32))], many(20, rows), [rows])
    assert len(where(decide(view, CostModel()))) == 4, "two at once, and two ahead"


def test_a_device_shared_with_other_busy_instances_is_estimated_as_slower():
    other = signature("other")
    fair = UtilityWeights(1.0, 0.0, 0.0)
    busy = worker("busy", lane(LLM), lane(other, assigned=1), memory_mib=48_000)
    free = worker("free", lane(LLM), lane(other), memory_mib=48_000)
    ready = [
        action("a", LLM, weights=fair, work=WorkSize(tokens_out=9e4, component_bytes=16 * 10**9))
    ]
    for order in ([busy, free], [free, busy]):
        view = snapshot(order, ready, [LLM])
        assert where(decide(view, CostModel())) == {"a": "free"}
    busy_for, free_for = (
        candidates_of(ready[0], snapshot([one], ready, [LLM]), CostModel())[0].terms.finish_s
        for one in (busy, free)
    )
    assert busy_for == pytest.approx(2 * free_for)


def test_a_load_halved_after_running_out_of_memory_is_not_exceeded_by_looking_ahead():
    cut = signature("cut", capacity=4, capacity_factor={"nvidia-l40s": 0.5})
    assert len(where(decide(snapshot([worker("w")], many(9, cut), [cut]), CostModel()))) == 2


def test_memory_bounds_the_instances_that_one_cycle_opens():
    infos = [signature(f"s{n}x", memory_mib=3000) for n in range(5)]
    ready = [action(f"a{n}x", info) for n, info in enumerate(infos)]
    decision = decide(snapshot([worker("w", memory_mib=8000)], ready, infos), CostModel())
    assert len(where(decision)) == 2
    assert refused(decision) == {"busy": 3}


def test_waiting_for_a_loaded_instance_beats_an_idle_worker_that_must_fetch_the_model():
    hot = worker("hot", lane(LLM, assigned=8, remaining_s=3.0))
    view = snapshot([hot, worker("cold")], many(4, LLM), [LLM])
    decision = decide(view, CostModel())
    assert where(decision) == {}
    assert refused(decision) == {"busy": 4}


def test_an_idle_worker_takes_actions_that_would_wait_too_long_for_the_loaded_instance():
    hot = worker("hot", lane(LLM, assigned=8, remaining_s=90_000.0))
    ready = many(4, LLM, weights=UtilityWeights(1.0, 0.1, 0.1))
    decision = decide(snapshot([hot, worker("cold")], ready, [LLM]), CostModel())
    assert set(where(decision).values()) == {"cold"}


def test_a_long_queue_for_a_loaded_instance_spills_over_to_an_idle_worker():
    quick = signature("quick", capacity=1, components={"small": 1_000_000})
    hot = worker("hot", lane(quick, assigned=2, remaining_s=20.0))
    weights = UtilityWeights(1.0, 0.0, 0.05)
    few = decide(
        snapshot([hot, worker("cold")], many(1, quick, weights=weights), [quick]), CostModel()
    )
    lots = decide(
        snapshot([hot, worker("cold")], many(4000, quick, weights=weights), [quick]), CostModel()
    )
    assert where(few) == {}
    assert set(where(lots).values()) == {"cold"}


@pytest.mark.parametrize(
    ("weights", "chosen"),
    [
        (UtilityWeights(1, 0, 0), "fast"),
        (UtilityWeights(0, 1, 0), "cheap"),
        (UtilityWeights(0.1, 0.1, 1), "near"),
    ],
)
def test_policy_weights_choose_between_fast_cheap_and_near(weights, chosen):
    big = signature("big", components=MODEL, work_unit="tokens")
    long = WorkSize(tokens_in=10.0, tokens_out=200_000.0, component_bytes=16_000_000_000)
    workers = [
        worker("fast", device_class="nvidia-h100", price_nanousd_per_hour=9_000_000_000),
        worker("cheap", device_class="nvidia-4090", price_nanousd_per_hour=100_000_000),
        worker(
            "near",
            device_class="nvidia-a100",
            price_nanousd_per_hour=5_000_000_000,
            near={"model": Tier.DISK},
        ),
    ]
    ready = [action("a", big, weights=weights, work=long)]
    assert where(decide(snapshot(workers, ready, [big]), CostModel())) == {"a": chosen}


def test_an_equal_load_time_everywhere_does_not_hide_which_worker_is_faster():
    big = signature("big", capacity=64, components=MODEL, work_unit="tokens")
    short = WorkSize(tokens_in=10.0, tokens_out=300.0, component_bytes=16_000_000_000)
    workers = [
        worker("cheap", device_class="nvidia-4090", price_nanousd_per_hour=400_000_000),
        worker("fast", device_class="nvidia-h100", price_nanousd_per_hour=2_200_000_000),
    ]
    hurried = [action("a", big, weights=UtilityWeights(2.0, 0.5, 0.5), work=short)]
    assert where(decide(snapshot(workers, hurried, [big]), CostModel())) == {"a": "fast"}
    hot = [worker("hot", lane(big), device_class="nvidia-4090"), workers[1]]
    assert where(decide(snapshot(hot, hurried, [big]), CostModel())) == {"a": "hot"}


def test_the_cost_of_an_instance_is_spread_over_its_capacity_and_a_suspect_bears_it_alone():
    fast = worker("w", near={"m": Tier.DISK})
    wide = replace(LLM, capacity=32)

    def cost_of(info, **fields):
        ready = [action("a", info, **fields)]
        (placement,) = decide(snapshot([fast], ready, [info]), CostModel()).placements
        return placement.terms.nanousd

    assert cost_of(wide) < cost_of(LLM)
    assert cost_of(wide, isolate=True) == cost_of(LLM, isolate=True) > cost_of(LLM)


def test_an_action_is_placed_where_its_large_inputs_are():
    rows = ((digest("rows"), 900_000_000),)
    ready = [action("a", SQL, inputs=rows, work=WorkSize(units=10, input_bytes=900_000_000))]
    workers = [worker("u"), worker("v", near={"rows": Tier.DISK}), worker("w")]
    assert where(decide(snapshot(workers, ready, [SQL]), CostModel())) == {"a": "v"}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"engine": "absent"}, RejectionCause.ENGINE_NOT_OFFERED),
        ({"contract": 2}, RejectionCause.VERSION_NOT_OFFERED),
        ({"implementation_version": 7}, RejectionCause.VERSION_NOT_OFFERED),
        ({"checks_variants": True, "dtype": "float64"}, RejectionCause.VARIANT_UNSUPPORTED),
        ({"checks_variants": True, "batch_invariant": False}, RejectionCause.VARIANT_UNSUPPORTED),
        ({"checks_variants": True, "implementation": "x"}, RejectionCause.VARIANT_UNSUPPORTED),
        ({"user_code": True}, RejectionCause.USER_CODE),
        ({"builtin_model": "one"}, RejectionCause.NOT_BUILT_IN),
        ({"labels": {"team": "other"}}, RejectionCause.LABELS),
        ({"anti_labels": {"team": "mine"}}, RejectionCause.LABELS),
        ({"gpu_product": ("nvidia-h100",)}, RejectionCause.DEVICES),
        ({"tensor_parallel": 2}, RejectionCause.DEVICES),
        ({"memory_mib": 8001}, RejectionCause.MEMORY),
        ({"min_memory_by_class": {"nvidia-l40s": 8000}}, RejectionCause.MEMORY),
    ],
)
def test_a_hard_constraint_rejects_with_its_cause_and_a_remedy(changes, cause):
    info = replace(LLM, requirement=replace(LLM.requirement, **changes))
    variants = (EngineVariant("llm.generate", "vllm", ("float32",), (True,)),)
    view = snapshot(
        [worker("w", labels={"team": "mine"}, variants=variants, builtin_models=("other",))],
        many(2, info),
        [info],
    )
    (rejection,) = decide(view, CostModel()).rejections
    assert rejection.cause is cause
    assert rejection.count == 2
    assert ";" in rejection.detail
    if cause is RejectionCause.USER_CODE:
        assert "userCode: true" in rejection.detail, "as the field of a pool is named"


def test_an_action_with_a_variant_that_the_pool_offers_is_placed():
    changes = {"checks_variants": True, "dtype": "float32", "batch_invariant": True}
    info = replace(LLM, requirement=replace(LLM.requirement, **changes))
    variants = (EngineVariant("llm.generate", "vllm", ("float32", "bfloat16"), (True,)),)
    view = snapshot([worker("w", variants=variants)], many(1, info), [info])
    assert len(where(decide(view, CostModel()))) == 1


def test_the_nearest_worker_gives_the_reason():
    offers = worker("small", memory_mib=100)
    lacks = worker("other", engines={"data.sql": EngineVersion(1, 1)})
    (rejection,) = decide(snapshot([offers, lacks], many(1, LLM), [LLM]), CostModel()).rejections
    assert rejection.cause is RejectionCause.MEMORY
    assert "1000 MiB" in rejection.detail


def test_the_reason_for_no_placement_without_workers_names_the_missing_workers():
    assert refused(decide(snapshot([], many(3, LLM), [LLM]), CostModel())) == {"no-workers": 3}


def test_draining_workers_take_nothing_new_and_are_named_as_the_reason():
    view = snapshot([worker("w", lane(LLM, assigned=1), draining=True)], many(3, LLM), [LLM])
    assert refused(decide(view, CostModel())) == {"draining": 3}


def test_an_action_in_backoff_waits_and_is_placed_when_it_is_due():
    ready = many(1, SQL, not_before_s=NOW_S + 5)
    assert refused(decide(snapshot([worker("w")], ready, [SQL]), CostModel())) == {"backoff": 1}
    later = snapshot([worker("w")], ready, [SQL], now_s=NOW_S + 5)
    assert len(where(decide(later, CostModel()))) == 1


def test_a_suspect_runs_alone_in_its_instance():
    suspect = action("suspect", LLM, isolate=True, priority=9)
    view = snapshot([worker("v"), worker("w")], [suspect, *many(4, LLM)], [LLM])
    placed = where(decide(view, CostModel()))
    assert [name for name, at in placed.items() if at == placed["suspect"]] == ["suspect"]
    assert len(placed) == 5


def test_a_suspect_never_shares_an_instance_with_other_work():
    suspect = action("suspect", LLM, isolate=True)
    busy = snapshot([worker("w", lane(LLM, assigned=1))], [suspect], [LLM])
    assert where(decide(busy, CostModel())) == {}
    alone = snapshot([worker("w", lane(LLM, assigned=1, isolated=True))], many(2, LLM), [LLM])
    assert where(decide(alone, CostModel())) == {}


def test_a_worker_where_an_action_failed_is_used_only_if_there_is_no_other():
    ready = many(1, SQL, avoid_workers=frozenset({"v"}))
    both = snapshot([worker("v"), worker("w")], ready, [SQL])
    assert list(where(decide(both, CostModel())).values()) == ["w"]
    one = snapshot([worker("v")], ready, [SQL])
    assert list(where(decide(one, CostModel())).values()) == ["v"]


def test_a_replica_takes_an_idle_worker_only_and_never_that_of_the_original():
    replica = many(1, SQL, prefix="r", replica_of="v")
    idle = snapshot([worker("v", lane(SQL, assigned=1)), worker("w")], replica, [SQL])
    assert list(where(decide(idle, CostModel())).values()) == ["w"]
    busy = snapshot([worker("v"), worker("w", lane(LLM, assigned=1))], replica, [SQL])
    assert where(decide(busy, CostModel())) == {}


def test_a_replica_opens_no_instance_that_loads_for_longer_than_it_runs():
    replica = many(1, LLM, prefix="r", replica_of="v")
    work = WorkSize(tokens_out=10.0, component_bytes=MODEL["model"])
    (short,) = [structs.replace(r, work=work) for r in replica]
    cold = snapshot([worker("v", lane(LLM, assigned=1)), worker("w")], [short], [LLM])
    assert where(decide(cold, CostModel())) == {}
    warm = snapshot([worker("v", lane(LLM, assigned=1)), worker("w", lane(LLM))], [short], [LLM])
    assert list(where(decide(warm, CostModel())).values()) == ["w"]


def test_whether_a_replica_may_load_an_engine_depends_on_its_size_and_not_on_list_order():
    sizes = {"r1": 10.0, "r2": 1e6}
    ready = [
        action(
            name,
            LLM,
            replica_of="v",
            work=WorkSize(tokens_out=tokens, component_bytes=MODEL["model"]),
        )
        for name, tokens in sizes.items()
    ]
    fleet = [worker("v", lane(LLM, assigned=1)), worker("w")]
    for listed in (ready, ready[::-1]):
        assert where(decide(snapshot(fleet, listed, [LLM]), CostModel())) == {"r2": "w"}


def test_replicas_come_after_everything_else():
    ready = [action("r", SQL, replica_of="x", priority=99), action("a", LLM)]
    view = snapshot([worker("w")], ready, [SQL, LLM])
    assert where(decide(view, CostModel())) == {"a": "w"}


def test_a_deadline_overrules_the_policy_where_only_one_worker_meets_it():
    big = signature("big", components=MODEL, work_unit="tokens")
    work = WorkSize(tokens_out=10_000.0, component_bytes=16_000_000_000)
    workers = [
        worker("slow", device_class="nvidia-l4", price_nanousd_per_hour=1),
        worker("fast", device_class="nvidia-h100", price_nanousd_per_hour=10**10),
    ]
    thrifty = UtilityWeights(0, 1, 0)
    easy = action("a", big, work=work, weights=thrifty)
    hard = structs.replace(easy, deadline_s=NOW_S + 300)
    assert where(decide(snapshot(workers, [easy], [big]), CostModel())) == {"a": "slow"}
    assert where(decide(snapshot(workers, [hard], [big]), CostModel())) == {"a": "fast"}


def test_an_instance_is_not_filled_so_far_that_its_tightest_deadline_is_missed():
    wide = signature("wide", capacity=64, components=MODEL, work_unit="tokens")
    free = lane(wide, assigned=2, remaining_s=20.0)
    tight = lane(wide, assigned=2, remaining_s=20.0, tightest_deadline_s=NOW_S + 21.0)
    work = WorkSize(tokens_out=1000.0, component_bytes=16_000_000_000)
    ready = many(100, wide, work=work)
    unbounded = where(decide(snapshot([worker("w", free)], ready, [wide]), CostModel()))
    bounded = where(decide(snapshot([worker("w", tight)], ready, [wide]), CostModel()))
    assert len(unbounded) == 100
    assert 0 < len(bounded) < 40


def test_a_deadline_that_is_already_missed_delays_no_other_action():
    lost = lane(LLM, assigned=2, remaining_s=20.0, tightest_deadline_s=NOW_S + 1.0)
    view = snapshot([worker("w", lost)], many(9, LLM), [LLM])
    assert len(where(decide(view, CostModel()))) == 6


def test_an_always_busy_instance_makes_room_for_an_action_that_has_waited_long():
    other = signature("other", memory_mib=7500)
    mine = signature("mine", memory_mib=7500, capacity=4)
    fed = worker("w", lane(mine, assigned=3))
    waiting = action("b", other, tenant="late", ready_s=NOW_S - 500)
    ready = [waiting, *many(9, mine, tenant="early")]
    view = snapshot([fed], ready, [other, mine], paid={"early": 10.0, "late": 0.0})
    assert where(decide(view, CostModel())) == {}
    patient = [structs.replace(waiting, ready_s=NOW_S - 1), *ready[1:]]
    view = snapshot([fed], patient, [other, mine], paid={"early": 10.0, "late": 0.0})
    assert len(where(decide(view, CostModel()))) == 5
    first = snapshot([fed], ready, [other, mine], paid={"early": 0.0, "late": 1e12})
    assert len(where(decide(first, CostModel()))) == 5


def test_learned_durations_change_the_placement():
    model = CostModel()
    workers = [worker("a", device_class="nvidia-l40s"), worker("b", device_class="nvidia-a10g")]
    ready = many(1, SQL, weights=UtilityWeights(1, 0, 0))
    before = where(decide(snapshot(workers, ready, [SQL]), model))
    for _ in range(20):
        model.observe(CostKey.of(SQL), ready[0].work, 30.0, 0.0, "nvidia-l40s")
        model.observe(CostKey.of(SQL), ready[0].work, 0.5, 0.0, "nvidia-a10g")
    after = where(decide(snapshot(workers, ready, [SQL]), model))
    assert (list(before.values()), list(after.values())) == (["a"], ["b"])


def test_explain_shows_the_utility_terms_of_the_placement():
    workers = [worker("u", lane(LLM, assigned=2)), worker("v"), worker("w", device_class="cpu")]
    ready = many(3, LLM)
    view = snapshot(workers, ready, [LLM])
    (placement,) = decide(view, CostModel()).placements
    candidates = candidates_of(ready[0], view, CostModel())
    assert candidates[0].worker == placement.worker
    assert candidates[0].terms == placement.terms
    assert [c.has_instance for c in candidates] == [True, False, False]
    utilities = [c.terms.utility for c in candidates]
    assert utilities == sorted(utilities, reverse=True)


def test_an_action_in_backoff_is_explained_too():
    waiting = action("a", LLM, not_before_s=NOW_S + 60)
    view = snapshot([worker("w")], [waiting], [LLM])
    assert [c.worker for c in candidates_of(waiting, view, CostModel())] == ["w"]
    lost = snapshot([worker("w", engines={})], [waiting], [LLM])
    assert candidates_of(waiting, lost, CostModel()) == []


def test_a_placement_names_its_worker_and_the_best_alternative():
    workers = [worker(f"w{n}", price_nanousd_per_hour=n * 10**9) for n in range(1, 8)]
    (placement,) = decide(snapshot(workers, many(1, LLM), [LLM]), CostModel()).placements
    winner, *others = placement.candidates
    assert winner.worker == placement.worker == "w1"
    assert winner.utility == pytest.approx(placement.terms.utility, abs=1e-4)
    assert [other.worker for other in others] == ["w2", "w3", "w4", "w5"]
    assert [other.cost for other in others] == sorted(other.cost for other in others)


def test_workers_that_are_alike_are_named_once_and_the_chosen_one_never_twice():
    view = snapshot([worker("a"), worker("b"), worker("c")], many(1, LLM), [LLM])
    (placement,) = decide(view, CostModel()).placements
    assert [one.worker for one in placement.candidates] == ["a", "b"]
    alone = decide(snapshot([worker("a")], many(1, LLM), [LLM]), CostModel()).placements
    assert [one.worker for one in alone[0].candidates] == ["a"]
