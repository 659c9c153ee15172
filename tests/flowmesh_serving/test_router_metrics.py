"""The router's counters: by service, with a bound on the number of labels."""

from flowmesh_serving.metrics import RouterMetrics


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
