"""What a panel is, before it is Grafana's."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a panel shows its series."""

    LINES = "lines"
    STACKED = "stacked"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression and what its series are called.

    Attributes:
        needs: ``operator`` where only the operator exports what it asks for.
    """

    expr: str
    legend: str = ""
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        unit: Grafana's name of it.
        about: shown at the panel's corner: what one sees, and when to worry.
    """

    title: str
    queries: tuple[Query, ...]
    unit: str
    about: str
    kind: Kind = Kind.LINES


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard: rows of panels.

    Attributes:
        variables: label → metric whose values of it one may choose from.
    """

    uid: str
    title: str
    about: str
    variables: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
