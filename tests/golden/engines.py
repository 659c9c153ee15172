"""What the built-in engines promise to keep: defaults of parameters, and results.

``engines.json`` has, of every engine, its versions, the minor and default of every parameter, and
a digest of its results on fixed inputs where it computes them without a model. An entry may change
only with the engine's ``version`` or ``implementation``; an addition needs ``minor``.

``python -m tests.golden.engines --write`` records intended changes, and refuses others.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
from tests.golden.engine_results import RESULTS

from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.catalog.identity_fields import identity_field
from flowmesh_core.identity import digest_bytes
from flowmesh_core.identity.coerce import default_of

FILE = Path(__file__).with_name("engines.json")
Entry = Mapping[str, Any]


def entry_of(contract: EngineContract, results: Callable[[], Any] | None = None) -> Entry:
    """Returns what an engine promises today."""
    added = dict(contract.added_fields)
    fields = [(f, added.get(f, 0), identity_field(contract, f)) for f in contract.identity_fields]
    given = [(p.name, p.added, p) for p in contract.params] + fields
    found: dict[str, Any] = {
        "version": contract.version,
        "implementation": contract.implementation,
        "minor": contract.minor,
        "defaults": {name: [added, default_of(p)] for name, added, p in given},
    }
    if results is not None:
        found["results"] = digest_bytes(orjson.dumps(results(), option=orjson.OPT_SORT_KEYS))
    return found


def today(only: Iterable[EngineContract] | None = None) -> dict[str, Entry]:
    """Returns the entries of all built-in engines."""
    return {
        c.name: entry_of(c, RESULTS.get(c.name)) for c in (contracts() if only is None else only)
    }


def problems(recorded: Mapping[str, Entry], found: Mapping[str, Entry]) -> list[str]:
    """Returns every change that would give an old name a new meaning, or a new name to old work."""
    return [
        problem
        for name, old in recorded.items()
        if name in found and _versions(found[name]) == _versions(old)
        for problem in _problems_of(name, old, found[name])
    ]


def _problems_of(name: str, old: Entry, new: Entry) -> Iterable[str]:
    before, after = old["defaults"], new["defaults"]
    for param, line in before.items():
        if after.get(param) != line:
            yield f"{name}: {param} was {line}, is {after.get(param)}: raise version"
    for param in after.keys() - before.keys():
        if not old["minor"] < after[param][0] <= new["minor"]:
            yield f"{name}: {param} is new: say added={old['minor'] + 1}, and raise minor to it"
    if old.get("results", "") != new.get("results", "") and "results" in old:
        yield f"{name}: its results have changed: raise implementation"


def _versions(entry: Entry) -> tuple[int, int]:
    return entry["version"], entry["implementation"]


def read() -> dict[str, Entry]:
    """Returns the recorded entries."""
    recorded: dict[str, Entry] = orjson.loads(FILE.read_bytes())
    return recorded


def main(arguments: list[str]) -> int:
    """Records today's entries with ``--write``, unless a version is missing."""
    found = today()
    wrong = problems(read(), found) if FILE.exists() else []
    for problem in wrong:
        sys.stderr.write(f"{problem}\n")
    if "--write" in arguments and not wrong:
        option = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        FILE.write_bytes(orjson.dumps(found, option=option))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
