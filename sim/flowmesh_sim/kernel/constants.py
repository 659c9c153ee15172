"""The simulator's constants: one readable file, with the source and the confidence of each.

``constants.yaml`` is read once; a scenario or a sensitivity sweep changes values by path. The
rest of the simulator takes a :class:`Constants` and never a bare number.
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
ASSUMED = "A"


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant.

    Attributes:
        path: its name, such as ``devices.h100-nvl.tdp_w``; the unit is part of it.
        confidence: H, M, L, or A for an assumption.
        range: where a sweep should look; empty where nothing is known.
    """

    path: str
    value: float
    source: str
    confidence: str
    range: tuple[float, ...] = ()

    @property
    def assumed(self) -> bool:
        """Whether no source was found."""
        return self.confidence == ASSUMED


class Constants:
    """All constants of one simulation.

    Attributes:
        table: every fact by path.
    """

    def __init__(self, table: Mapping[str, Constant]) -> None:
        """Takes every fact by its path."""
        self.table = dict(table)
        tree: dict[str, Any] = {}
        for path, fact in table.items():
            group, _, rest = path.partition(".")
            which, _, name = rest.rpartition(".")  # names of models have dots of their own
            place = tree.setdefault(group, {})
            if which:
                place = place.setdefault(which, {})
            place[name] = fact.value
        self.tree = tree

    def group(self, name: str) -> Any:
        """The values of a group such as ``serving``, as attributes."""
        return SimpleNamespace(**self.tree[name])

    def names(self, group: str) -> list[str]:
        """What ``devices``, ``models`` or ``datasets`` has."""
        return list(self.tree[group])

    def one(self, group: str, name: str) -> Any:
        """The values of one device, model or data set, as attributes.

        Raises:
            FlowMeshError: there is none of this name; says which there are.
        """
        if name not in self.tree[group]:
            hint = did_you_mean(name, self.tree[group])
            raise FlowMeshError(f"no {group.removesuffix('s')} {name!r}{hint}", where="facts")
        return SimpleNamespace(**self.tree[group][name])

    def changed(self, changes: Mapping[str, float]) -> "Constants":
        """A copy with other values.

        Raises:
            FlowMeshError: a path names no fact.
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
def read_facts() -> Constants:
    """The constants of the file.

    Raises:
        FlowMeshError: a value lacks its source or its confidence.
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
