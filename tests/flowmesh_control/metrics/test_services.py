"""Metrics of services' replicas: by service and state, with labels that are closed."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from tests.flowmesh_core.machine.test_serving import replica, state_of
from tests.flowmesh_core.machine.world import World

from flowmesh_api.v1.services import ServiceReplicas, ServiceStatus
from flowmesh_control.metrics.services import SERVICES_MAX, idle, replicas


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
