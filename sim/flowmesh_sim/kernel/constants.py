"""The simulator's constants, from one YAML file with the source and confidence of each.

``constants.yaml`` is read once; a scenario or a sensitivity sweep changes values by path. The rest
of the simulator uses a :class:`Constants` instead of literal numbers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

from ruamel.yaml import YAML

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.spec.suggestions import did_you_mean

CONFIDENCE = {"H", "M", "L", "A"}


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant.

    Attributes:
        path: its name, such as ``devices.h100-nvl.tdp_w``; the unit is part of it.
        confidence: H, M, L, or A for an assumption.
        range: the values of a sweep; empty if unknown.
    """

    path: str
    value: float
    source: str
    confidence: str
    range: tuple[float, ...] = ()


class Constants:
    """All constants of a simulation.

    Attributes:
        table: every constant by path.
    """

    def __init__(self, table: Mapping[str, Constant]) -> None:
        """Builds the groups from the constants by path."""
        self.table = dict(table)
        tree: dict[str, Any] = {}
        for path, fact in table.items():
            group, _, rest = path.partition(".")
            which, _, name = rest.rpartition(".")  # names of models contain dots
            place = tree.setdefault(group, {})
            if which:
                place = place.setdefault(which, {})
            place[name] = fact.value
        self.tree = tree

    def group(self, name: str) -> Any:
        """Returns the values of a group such as ``serving``, as attributes."""
        return SimpleNamespace(**self.tree[name])

    def names(self, group: str) -> list[str]:
        """Returns the names in ``devices``, ``models`` or ``datasets``."""
        return list(self.tree[group])

    def one(self, group: str, name: str) -> Any:
        """Returns the values of one device, model or data set, as attributes.

        Raises:
            FlowMeshError: the name is unknown.
        """
        if name not in self.tree[group]:
            hint = did_you_mean(name, self.tree[group])
            raise FlowMeshError(f"no {group.removesuffix('s')} {name!r}{hint}", where="facts")
        return SimpleNamespace(**self.tree[group][name])

    def changed(self, changes: Mapping[str, float]) -> "Constants":
        """Returns a copy with other values.

        Raises:
            FlowMeshError: a path is unknown.
        """
        table = dict(self.table)
        for path, value in changes.items():
            known = table.get(path)
            if known is None:
                raise FlowMeshError(f"no fact {path!r}{did_you_mean(path, table)}", where="facts")
            table[path] = Constant(
                path, float(value), "the scenario", known.confidence, known.range
            )
        return Constants(table)


@cache
def read_constants() -> Constants:
    """Returns the constants of the file.

    Raises:
        FlowMeshError: a value has no source or no confidence.
    """
    text = files("flowmesh_sim.kernel").joinpath("constants.yaml").read_text()
    return Constants({f.path: f for f in _walk(YAML(typ="safe").load(text), "")})


def _walk(tree: Mapping[str, Any], path: str) -> Iterator[Constant]:
    for key, value in tree.items():
        here = f"{path}.{key}" if path else str(key)
        if "value" not in value:
            yield from _walk(value, here)
            continue
        if not value.get("source") or value.get("confidence") not in CONFIDENCE:
            raise FlowMeshError(
                "a fact needs a source and a confidence of H, M, L or A",
                where=f"constants.yaml: {here}",
            )
        yield Constant(
            here,
            float(value["value"]),
            str(value["source"]),
            value["confidence"],
            tuple(float(v) for v in value.get("range", ())),
        )
