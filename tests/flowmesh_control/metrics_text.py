"""Reads a page of metrics as Prometheus would."""

from prometheus_client.parser import text_string_to_metric_families


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Values by name and sorted labels."""
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text.decode())
        for s in family.samples
    }


def total(text: bytes, name: str, **labels: str) -> float:
    """The sum of a metric over the series that carry the labels."""
    wanted = set(labels.items())
    return sum(v for (n, have), v in samples(text).items() if n == name and wanted <= set(have))


def counters(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The counters only."""
    return {k: v for k, v in samples(text).items() if k[0].endswith("_total")}
