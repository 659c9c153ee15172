"""Turns ``plan.yaml`` into the cells of the evaluation: scenarios with their seeds."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log
from typing import Any

from ruamel.yaml import YAML

from flowmesh_sim.kernel.constants import read_constants
from flowmesh_sim.scenario import Scenario, scenario_of

Json = dict[str, Any]
HALVED, DOUBLED = 0.5, 2.0
LOGARITHM = "_mu"
"""The ending of constants that are logarithms; halving and doubling adds to them."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One scenario, to be simulated with several seeds.

    Attributes:
        experiment: the table or figure that it belongs to.
        system: key of ``systems``; ``load`` is a key of ``loads``.
        variant: distinguishes cells of an experiment that are otherwise equal.
        document: the scenario as plain values.
    """

    experiment: str
    system: str
    load: str
    workers: int
    variant: str
    document: Json
    seeds: tuple[int, ...]

    @property
    def scenario(self) -> Scenario:
        """The validated scenario."""
        return scenario_of(self.document, f"plan.yaml: {self.label}")

    @property
    def label(self) -> str:
        """The name in progress lines."""
        parts = (self.experiment, self.variant, self.load, f"{self.workers} workers", self.system)
        return " ".join(part for part in parts if part)


@cache
def read_plan() -> Json:
    """Returns ``plan.yaml`` as plain values."""
    text = files("flowmesh_sim.paper").joinpath("plan.yaml").read_text()
    found: Json = YAML(typ="safe", pure=True).load(text)
    return found


def cells(plan: Json) -> Iterator[Cell]:
    """Yields every cell of every experiment, then the sensitivity sweep."""
    for experiment, entries in plan["experiments"].items():
        for entry in entries:
            for load in entry["loads"]:
                for system in entry["systems"]:
                    yield _cell(plan, experiment, entry, load, system)
    yield from _sensitivity(plan)


def _cell(plan: Json, experiment: str, entry: Json, load: str, system: str) -> Cell:
    settings: Json = plan["systems"][system]
    control: Json = entry["control"] if "control" in entry else plan["control"]
    document: Json = {
        "name": "paper",
        "pools": list(_pools(plan["fleets"][entry["fleet"]], entry["workers"], settings)),
        "load": [deepcopy(plan["loads"][load])],
        "policy": settings["policy"],
        "policyOptions": settings.get("options", {}),
        "sharing": settings["sharing"],
        "control": {**control, "replicas": _ours(settings)},
        "facts": dict(settings.get("facts", {})),
        "faults": entry.get("faults", []),
    }
    seeds: tuple[int, ...] = tuple(plan["seeds"])
    document["load"][0]["optimize"] = settings.get("optimize", "balanced")
    name = str(entry.get("name", ""))
    return Cell(experiment, system, load, entry["workers"], name, document, seeds)


def _ours(system: Json) -> bool:
    """Whether it is the shipped scheduler or an ablation: baselines start no replica attempts."""
    return system["policy"] in ("shipped", "unbatched", "random-placement")


def _pools(devices: list[str], workers: int, system: Json) -> Iterator[Json]:
    elastic = system.get("elastic")
    for number, device in enumerate(devices):
        # The name's first letter keeps the order of devices: first fit goes by names.
        share = workers // len(devices)
        name = f"{chr(97 + number)}-{device}"
        pool: Json = {"name": name, "device": device, "workers": share, "prewarm": _ours(system)}
        if elastic is not None:
            pool |= {"workers": 0, "minimum": 0, "maximum": share, "autoscale": True, **elastic}
        yield pool


# -- sensitivity ---------------------------------------------------------------------------------


def _sensitivity(plan: Json) -> Iterator[Cell]:
    sweep = plan["sensitivity"]
    entry = plan["experiments"]["fig5"][0]
    table = read_constants().table
    for paths in sweep["facts"]:
        for factor in (HALVED, DOUBLED):
            facts = {path: changed(path, table[path].value, factor) for path in paths}
            yield from _swept(plan, sweep, entry, f"{paths[0]} x{factor:g}", {"facts": facts})
    for key in sweep["load"]:
        for factor in (HALVED, DOUBLED):
            value = round(plan["loads"]["a"][key] * factor)
            yield from _swept(plan, sweep, entry, f"{key} x{factor:g}", {"load": {key: value}})


def changed(path: str, value: float, factor: float) -> float:
    """Returns a constant times a factor; to a logarithm, the factor's logarithm is added."""
    return value + log(factor) if path.endswith(LOGARITHM) else value * factor


def _swept(
    plan: Json, sweep: Json, entry: Json, variant: str, change: Mapping[str, Json]
) -> Iterator[Cell]:
    for system in sweep["systems"]:
        cell = _cell(plan, "sensitivity", entry, "a", system)
        document = deepcopy(cell.document)
        document["facts"] |= change.get("facts", {})
        document["load"][0] |= change.get("load", {})
        yield Cell(
            "sensitivity", system, "a", cell.workers, variant, document, tuple(sweep["seeds"])
        )
