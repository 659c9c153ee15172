"""The definition of panels and dashboards, independent of Grafana's format."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a panel shows its series."""

    LINES = "lines"
    STACKED = "stacked"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression and the legend of its series.

    Attributes:
        needs: ``operator``, ``router``, ``vllm`` or ``dcgm`` where only that exports its metrics;
            ``replica`` where they begin with the first replica of a service.
    """

    expr: str
    legend: str = ""
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        unit: Grafana's name of the unit.
        about: the description in the panel's corner: what it shows, and when to act.
        limit: the value from which it is drawn as too high; None where no value is.
        floor: the value below which it is drawn as too low; None where no value is.
    """

    title: str
    queries: tuple[Query, ...]
    unit: str
    about: str
    kind: Kind = Kind.LINES
    limit: float | None = None
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard: rows of panels.

    Attributes:
        variables: label → metric from which the selectable values of the label are read.
    """

    uid: str
    title: str
    about: str
    variables: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
