"""Builders of metric families: each metric is one expression with its name and help text."""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from flowmesh_core.metrics.histogram import Histogram

Rows = Iterable[tuple[Sequence[str], float]]
"""Label values, in the order of the label names, and the value."""


def gauge(name: str, doc: str, value: float) -> GaugeMetricFamily:
    """Returns a gauge without labels."""
    return GaugeMetricFamily(name, doc, value=value)


def counter(name: str, doc: str, value: float) -> CounterMetricFamily:
    """Returns a counter without labels, exported as ``<name>_total``."""
    return CounterMetricFamily(name, doc, value=value)


def gauges(name: str, doc: str, labels: Sequence[str], rows: Rows) -> GaugeMetricFamily:
    """Returns a gauge with labels."""
    family = GaugeMetricFamily(name, doc, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def counters(name: str, doc: str, labels: Sequence[str], rows: Rows) -> CounterMetricFamily:
    """Returns a counter with labels, exported as ``<name>_total``."""
    family = CounterMetricFamily(name, doc, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def histograms(
    name: str, doc: str, labels: Sequence[str], found: Mapping[tuple[str, ...], Histogram]
) -> HistogramMetricFamily:
    """Returns a histogram; ``labels`` may be empty."""
    family = HistogramMetricFamily(name, doc, labels=labels)
    for values, histogram in found.items():
        family.add_metric(values, histogram.cumulative(), histogram.total)
    return family
