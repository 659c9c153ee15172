"""Metrics of services' replicas: by service and state, with labels that are closed."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from tests.flowmesh_core.machine.test_serving import planned, replica, state_of
from tests.flowmesh_core.machine.world import World

from flowmesh_api.v1.services import ServiceReplicas, ServiceStatus
from flowmesh_control.metrics.services import SERVICES_MAX, capacities, idle, over_time, replicas
from flowmesh_core.metrics.counters import MachineCounters
from flowmesh_core.metrics.label_limits import OTHER


class _Found(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def text_of(*metrics: Metric) -> str:
    registry = CollectorRegistry()
    registry.register(_Found(list(metrics)))
    return generate_latest(registry).decode()


def status(name: str, *components: ServiceReplicas) -> ServiceStatus:
    return ServiceStatus(
        name=name,
        namespace="t",
        model=name,
        phase="Ready",
        generation=1,
        created_s=0.0,
        replicas=components,
    )


def test_replicas_are_counted_by_state_as_workers_report_them() -> None:
    world, ones = World(), [replica("t/a", number=n) for n in range(3)]
    world.join("w", replicas=())
    world.serves("w", state_of(ones[0]), state_of(ones[1], "failed"), state_of(ones[2], "strange"))
    placed = {one.replica_id: "w" for one in ones} | {"t/a/llm/r1/9": "gone"}
    llm = ServiceReplicas("llm", ready=1, wanted=4, placed=placed)
    rank = ServiceReplicas("rank", ready=0, wanted=1)
    text = text_of(*replicas([status("a", llm, rank)], world.machine.state))
    rows = {line.partition(" ")[0]: line.rpartition(" ")[2] for line in text.splitlines()}
    name = "flowmesh_service_replicas_by_state"
    assert {k: v for k, v in rows.items() if k.startswith(name)} == {
        f'{name}{{service="t/a",state="{state}"}}': count
        for state, count in (
            ("wanted", "5.0"),
            ("ready", "1.0"),
            ("failed", "1.0"),
            ("fetching", "0.0"),
            ("loading", "0.0"),
            ("closing", "0.0"),
        )
    }


def test_the_capacity_of_a_service_is_shown_once_it_is_known() -> None:
    known = msgspec.structs.replace(status("a"), best_per_s=4.8)
    text = text_of(*capacities([known, status("b")]))
    assert 'flowmesh_service_capacity_per_second{service="t/a"} 4.8' in text
    assert "t/b" not in text
    many = [
        msgspec.structs.replace(status(f"s{n:03}"), best_per_s=1.0) for n in range(SERVICES_MAX + 3)
    ]
    assert text_of(*capacities(many)).count('service="') == SERVICES_MAX, "they have no sum"


def test_services_beyond_the_first_count_as_other() -> None:
    many = [
        status(f"s{n:03}", ServiceReplicas("llm", ready=0, wanted=2))
        for n in range(SERVICES_MAX + 3)
    ]
    text = text_of(*replicas(many, World().machine.state))
    assert 'service="t/s199",state="wanted"} 2.0' in text
    assert 'service="other",state="wanted"} 6.0' in text
    assert "t/s200" not in text


def test_the_idle_time_of_replicas_is_shown_for_each_pool_with_workers() -> None:
    world = World()
    world.join("w", replicas=())
    world.tick(1.0)
    name = "flowmesh_replica_idle_seconds_total"
    text = text_of(*idle(world.machine.state))
    assert f'{name}{{pool="default",state="unused"}} 0.0' in text
    world.serves("w", state_of(replica("t/a")))
    world.tick(3.0)
    text = text_of(*idle(world.machine.state))
    assert f'{name}{{pool="default",state="unused"}} 3.0' in text
    assert f'{name}{{pool="default",state="used"}} 0.0' in text


def rows_of(figures: MachineCounters) -> dict[str, float]:
    """The samples of what is counted, without those of buckets and times of creation."""
    lines = [line for line in text_of(*over_time(figures)).splitlines() if line[0] != "#"]
    rows = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
    return {k: v for k, v in rows.items() if "_bucket" not in k and "_created" not in k}


def load_times(world: World) -> tuple[float, float]:
    """How many loads of replicas of t/a were counted, and their seconds."""
    rows = rows_of(world.machine.state.figures)
    name, label = "flowmesh_replica_load_seconds", '{service="t/a"}'
    return rows.get(f"{name}_count{label}", 0.0), rows.get(f"{name}_sum{label}", 0.0)


def failures(world: World) -> float:
    return rows_of(world.machine.state.figures)['flowmesh_replica_failures_total{service="t/a"}']


def test_the_time_to_load_runs_from_the_plan_until_the_worker_reports_the_replica_ready() -> None:
    world, one = World(), replica("t/a")
    world.join("w", replicas=())
    planned(world, w=(one,))
    for state, seconds in (("fetching", 3.0), ("loading", 4.0)):
        world.now += seconds
        world.serves("w", state_of(one, state))
    world.now += 5.0
    assert load_times(world) == (0.0, 0.0)
    for _ in range(2):
        world.serves("w", state_of(one))
    assert load_times(world) == (1.0, 12.0)
    assert failures(world) == 0.0


def test_a_replica_fails_when_it_does_not_load_and_when_it_loads_again_after_it_was_ready() -> None:
    world, one = World(), replica("t/a")
    world.join("w", replicas=())
    planned(world, w=(one,))
    for _ in range(2):  # each report counts once
        world.serves("w", state_of(one, "failed"))
    assert failures(world) == 1.0
    world.now += 60.0  # its delay is no time to load
    world.serves("w", state_of(one, "loading"))
    world.now += 7.0
    world.serves("w", state_of(one))
    assert load_times(world) == (1.0, 7.0)
    world.serves("w", state_of(one, "loading"))
    assert failures(world) == 2.0
    world.now += 2.0
    world.serves("w", state_of(one))
    assert load_times(world) == (2.0, 9.0)
    world.serves("w", state_of(one, "closing"))
    assert failures(world) == 2.0


def test_a_replica_that_a_new_leader_finds_loading_has_no_time_to_load() -> None:
    world, one = World(), replica("t/a")
    world.join("w", replicas=(state_of(one, "loading"),))
    planned(world, w=(one,))
    world.now += 5.0
    world.serves("w", state_of(one))
    assert load_times(world) == (0.0, 0.0)


def test_replicas_that_a_worker_was_not_given_count_for_nobody() -> None:
    world = World()
    world.join("w", replicas=())
    for state in ("loading", "ready", "failed"):
        world.serves("w", state_of(replica("t/a"), state))
    assert rows_of(world.machine.state.figures) == {"flowmesh_serving_plans_total": 0.0}


def test_plans_count_where_they_give_or_take_a_replica_not_where_they_are_sent_again() -> None:
    world, one = World(), replica("t/a")
    world.join("w", "v", replicas=())
    figures = world.machine.state.figures
    counts = []
    for plan in ({"w": (one,)}, {"w": (one,)}, {"v": (one,)}, {}):
        planned(world, **plan)
        counts.append(figures.serving_plans)
    assert counts == [1, 1, 2, 3]
    planned(world, w=(one,))
    world.hello("w", replicas=(state_of(one),))
    planned(world, w=(one,))
    assert figures.serving_plans == 4


def test_the_dollars_of_services_add_up_to_what_all_have_paid() -> None:
    world, ones = World(), (replica("t/a"), replica("t/b", 3000))
    world.join("w", replicas=())
    planned(world, w=ones)
    world.serves("w", *map(state_of, ones))
    world.tick(100.0)
    rows = rows_of(world.machine.state.figures)
    paid = [rows[f'flowmesh_service_usd_total{{service="t/{n}"}}'] for n in "ab"]
    assert 0.0 < 2.9 * paid[0] < paid[1]
    assert sum(paid) * 1e9 == pytest.approx(world.machine.state.book.services_nanousd)


def test_a_thousand_services_produce_a_bounded_number_of_series() -> None:
    figures = MachineCounters()
    for n in range(1000):
        figures.replica_sent(f"t/{n}", 0.0)
        figures.replica_failed(f"t/{n}", 0.0)
        figures.replica_loaded(f"t/{n}", 1.0, 0.0)
        figures.service_paid(f"t/{n}", 10, 0.0)
    assert len(rows_of(figures)) == 4 * (SERVICES_MAX + 1) + 1
    assert figures.service_paid_nanousd[OTHER] == 10 * (1000 - SERVICES_MAX)
    assert figures.service_paid_nanousd.total() == 10_000
