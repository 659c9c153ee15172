"""Shrinks a scenario that violates an invariant to a small one that violates the same.

Faults, loads, pools, shapes and options are removed, and runs, rows, tenants and workers reduced,
one at a time, while the same invariant is violated. The result is a scenario file.
"""

import io
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from ruamel.yaml import YAML

from flowmesh_core.errors import SpecError
from flowmesh_sim.scenario import scenario_of
from flowmesh_sim.soak.checked_world import run_checked
from flowmesh_sim.soak.random_scenarios import SAFE

Document = dict[str, Any]
_LEAST = {"runs": 1, "rows": 1, "variants": 1, "tenants": 1, "workers": 0, "devices": 1}
_NEEDED = frozenset({"name", "seed", "pools", "load", "device", "shapes", "kind", "atS", "limitS"})


def shrunk(
    document: Document,
    *,
    within_s: float = 600.0,
    told: Callable[[str], None] = lambda _: None,
) -> Document:
    """Returns the smallest scenario found.

    Args:
        document: a scenario that violates an invariant, as plain values.
        within_s: time limit in seconds, after which the smallest so far is returned.
        told: called with a description of every part that was removed.

    Raises:
        ValueError: the scenario violates no invariant.
    """
    kind = _breaks(document)
    if not kind:
        raise ValueError("this scenario breaks no invariant")
    until_s = time.monotonic() + within_s
    best, smaller = document, True
    while smaller:
        smaller = False
        tried = _smaller(best, keep_safe="have not ended" in kind)
        for what, candidate in tried:
            if time.monotonic() > until_s:
                return best
            if _breaks(candidate) == kind:
                told(what)
                best, smaller = candidate, True
                break
    return best


def as_yaml(document: Document) -> str:
    """Returns the text of a file for ``fmesh simulate``."""
    stream = io.StringIO()
    YAML().dump(document, stream)
    return stream.getvalue()


def _breaks(document: Document) -> str:
    """Returns the violated invariant; empty if none is, or if the scenario is not valid."""
    try:
        scenario = scenario_of(document)
    except SpecError:
        return ""
    return run_checked(scenario, every=1).kind


def _smaller(document: Document, *, keep_safe: bool) -> Iterator[tuple[str, Document]]:
    """Yields all scenarios that are smaller by one part, the largest parts first."""
    for group in ("faults", "load", "pools"):
        yield from _halves(document, group)
        for n, part in enumerate(document.get(group, [])):
            if keep_safe and part.get("name") == SAFE:
                continue  # without the safe worker runs need not end
            copy = deepcopy(document)
            del copy[group][n]
            yield f"without {group}[{n}]", copy
    for group in ("load", "pools"):
        for n, part in enumerate(document[group]):
            yield from _fewer(document, group, n, part)
    yield from _options(document)


def _halves(document: Document, group: str) -> Iterator[tuple[str, Document]]:
    parts = document.get(group, [])
    if len(parts) > 3:  # noqa: PLR2004 - fewer are as quickly removed one by one
        half = len(parts) // 2
        for name, rest in (("first", parts[half:]), ("second", parts[:half])):
            yield f"without the {name} half of {group}", {**deepcopy(document), group: rest}


def _fewer(
    document: Document, group: str, n: int, part: Document
) -> Iterator[tuple[str, Document]]:
    shapes = part.get("shapes", [])
    for shape in shapes if len(shapes) > 1 else []:
        copy = deepcopy(document)
        copy[group][n]["shapes"].remove(shape)
        yield f"{group}[{n}] without shape {shape}", copy
    for name, least in _LEAST.items():
        value = part.get(name, least)
        for smaller in dict.fromkeys((least, value // 2, value - 1)):
            if least <= smaller < value:
                copy = deepcopy(document)
                copy[group][n][name] = smaller
                yield f"{group}[{n}].{name} = {smaller}", copy


def _options(document: Document) -> Iterator[tuple[str, Document]]:
    """Yields the scenario without each of its optional fields."""
    for name in document.keys() - _NEEDED - {"faults"}:
        copy = deepcopy(document)
        del copy[name]
        yield f"without {name}", copy
    for name in document.get("control", {}):
        copy = deepcopy(document)
        del copy["control"][name]
        yield f"without control.{name}", copy
    for group in ("faults", "load", "pools"):
        for n, part in enumerate(document.get(group, [])):
            for name in part.keys() - _NEEDED - _LEAST.keys():
                copy = deepcopy(document)
                del copy[group][n][name]
                yield f"without {group}[{n}].{name}", copy
