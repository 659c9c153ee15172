"""The router's counters: by service, with a bound on the number of labels."""

from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_core.protocol.serving import CallTimes
from flowmesh_serving.component_metrics import COMPONENTS_MAX
from flowmesh_serving.metrics import RouterMetrics
from flowmesh_serving.time_sums import SecondsSum


def test_services_beyond_the_first_200_count_as_other() -> None:
    metrics = RouterMetrics()
    for number in range(203):
        metrics.of_service(f"ns/s{number}").count("ok", 0.01)
    metrics.of_service("ns/s0").count("ok", 0.01)
    text = metrics.text({}).decode()
    assert 'requests_total{outcome="ok",service="ns/s0"} 2.0' in text
    assert 'requests_total{outcome="ok",service="ns/s199"} 1.0' in text
    assert 'requests_total{outcome="ok",service="other"} 3.0' in text
    assert "ns/s200" not in text


def test_a_request_is_in_flight_until_its_end() -> None:
    metrics = RouterMetrics()
    with metrics.of_service("ns/s").track_in_flight():
        assert 'in_flight{service="ns/s"} 1.0' in metrics.text({}).decode()
    assert 'in_flight{service="ns/s"} 0.0' in metrics.text({}).decode()


def test_times_are_in_the_buckets_of_their_bounds() -> None:
    metrics = RouterMetrics()
    service = metrics.of_service("ns/s")
    for seconds in (0.001, 0.005, 0.006, 400.0):
        service.figures.latency.observe(seconds)
    service.figures.tokens_in += 3
    text = metrics.text({}).decode()
    name = "flowmesh_service_latency_seconds"
    assert f'{name}_bucket{{le="0.005",service="ns/s"}} 2.0' in text
    assert f'{name}_bucket{{le="0.01",service="ns/s"}} 3.0' in text
    assert f'{name}_bucket{{le="300.0",service="ns/s"}} 3.0' in text
    assert f'{name}_bucket{{le="+Inf",service="ns/s"}} 4.0' in text
    assert f'{name}_count{{service="ns/s"}} 4.0' in text
    assert f'{name}_sum{{service="ns/s"}} 400.012' in text
    assert 'flowmesh_service_tokens_total{direction="in",service="ns/s"} 3.0' in text
    assert "# TYPE flowmesh_service_requests_total counter" in text


def test_what_is_refused_at_once_makes_no_latency_look_short() -> None:
    metrics = RouterMetrics()
    metrics.use({"ns/s": ServiceEntry("ns/s", "s")})
    service = metrics.of_service("ns/s")
    for outcome in ("ok", "failed", "client-slow"):
        service.count(outcome, 8.0)
    for outcome in ("refused", "invalid", "cancelled"):
        service.count(outcome, 0.001)
    text = metrics.text({}).decode()
    assert 'flowmesh_service_latency_seconds_count{service="ns/s"} 3.0' in text
    assert 'flowmesh_service_latency_seconds_bucket{le="0.005",service="ns/s"} 0.0' in text
    assert 'requests_total{outcome="refused",service="ns/s"} 1.0' in text


def test_times_of_calls_are_summed_by_component() -> None:
    metrics = RouterMetrics()
    metrics.count_times("ns/s", "rank", CallTimes(4, 0.5, 2.0, 2, 4))
    metrics.count_times("ns/s", "rank", CallTimes(1, 0.25, 0.5, 1, 1))
    text = metrics.text({}).decode()
    labels = '{component="rank",service="ns/s"}'
    for name, count, total in (
        ("queue_seconds", 5.0, 0.75),
        ("compute_seconds", 5.0, 2.5),
        ("batch_size", 3.0, 5.0),
    ):
        assert f"flowmesh_service_{name}_count{labels} {count}" in text
        assert f"flowmesh_service_{name}_sum{labels} {total}" in text


def test_components_of_further_services_and_too_many_of_one_count_as_other() -> None:
    metrics = RouterMetrics()
    one = CallTimes(1, 0.0, 1.0, 1, 1)
    for number in range(COMPONENTS_MAX + 5):
        metrics.count_times("ns/first", f"c{number}", one)
    for number in range(200):
        metrics.count_times(f"ns/s{number}", "llm", one)
    text = metrics.text({}).decode()
    name = "flowmesh_service_batch_size_count"
    assert text.count(f"{name}{{") == COMPONENTS_MAX + 1
    assert f'{name}{{component="other",service="other"}} 205.0' in text


def test_the_times_of_all_choices_of_replicas_are_one_sum() -> None:
    calls, staged = SecondsSum(), SecondsSum()
    metrics = RouterMetrics((calls, staged))
    calls.observe(0.25)
    staged.observe(0.5)
    text = metrics.text({}).decode()
    assert "flowmesh_service_route_seconds_count 2.0" in text
    assert "flowmesh_service_route_seconds_sum 0.75" in text


def test_caps_are_those_of_now_for_services_with_labels_of_their_own() -> None:
    metrics = RouterMetrics()
    for number in range(200):
        metrics.of_service(f"ns/s{number}")
    text = metrics.text({}, {("ns/s0", "llm"): 8, ("ns/more", "llm"): 4}).decode()
    assert 'flowmesh_service_batch_cap{component="llm",service="ns/s0"} 8.0' in text
    assert "ns/more" not in text
    assert "batch_cap{" not in metrics.text({}).decode()
