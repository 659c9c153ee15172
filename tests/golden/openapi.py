"""What clients of version 1 of the API may rely on: operations, parameters, and fields with types.

``openapi.json`` has an entry for each, from the description of the API when it was recorded last.
None may be removed or get another type, default or requirement; new ones may be added, unless a
request would have to give them. So may media types of answers, which clients ask for.

``python -m tests.golden.openapi --write`` records additions, and refuses other changes.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flowmesh_api.v1.openapi import document

FILE = Path(__file__).with_name("openapi.json")
_REF = "#/components/schemas/"
Entries = Mapping[str, Any]


def entries(described: Mapping[str, Any]) -> dict[str, Any]:
    """Returns each promise of a description: its name, and its schema with what else counts."""
    found: dict[str, Any] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            found |= _of_operation(f"{method.upper()} {path}", operation)
    sent = _sent(described)
    for name, schema in described["components"]["schemas"].items():
        use = {"sent": True} if name in sent else {}
        own = {k: v for k, v in schema.items() if k not in ("properties", "required")}
        found[name] = _plain(own)
        for field, kind in schema.get("properties", {}).items():
            required = field in schema.get("required", ())
            found[f"{name}.{field}"] = {"schema": _plain(kind), "required": required, **use}
    return dict(sorted(found.items()))


def _of_operation(name: str, operation: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield name, {"id": operation["operationId"], "security": operation.get("security")}
    for parameter in operation.get("parameters", ()):
        required = parameter.get("required", False)
        what = {"schema": _plain(parameter["schema"]), "required": required, "sent": True}
        yield f"{name} {parameter['in']} {parameter['name']}", what
    if body := operation.get("requestBody"):
        what = {"schema": _plain(body["content"]), "required": body["required"], "sent": True}
        yield f"{name} body", what
    for status, response in operation["responses"].items():
        yield f"{name} {status}", _plain(response.get("content", response))


def _plain(schema: Any) -> Any:
    """Returns a schema without what is for readers."""
    if isinstance(schema, dict):
        return {k: _plain(v) for k, v in schema.items() if k != "description"}
    return [_plain(item) for item in schema] if isinstance(schema, list) else schema


def _sent(described: Mapping[str, Any]) -> set[str]:
    """Returns the names of the schemas of bodies, and of those that they refer to."""
    schemas = described["components"]["schemas"]
    bodies = [o.get("requestBody") for m in described["paths"].values() for o in m.values()]
    found: set[str] = set()
    open_names = _named(bodies)
    while open_names:
        found |= open_names
        open_names = _named([schemas[name] for name in open_names]) - found
    return found


def _named(schema: Any) -> set[str]:
    return set(re.findall(f'"{re.escape(_REF)}([^"]+)"', json.dumps(schema)))


def problems(recorded: Entries, found: Entries) -> Iterator[str]:
    """Yields each change that a client of the recorded description could not bear."""
    for name, old in recorded.items():
        if name not in found:
            yield f"{name} is gone: keep it, or add a version 2"
        elif not _extends(found[name], old):
            yield f"{name} was {json.dumps(old)}, is {json.dumps(found[name])}: add another one"
    for name in found.keys() - recorded.keys():
        new = found[name]
        owner = " ".join(name.split()[:2]) if " " in name else name.partition(".")[0]
        if owner in recorded and new.get("sent") and new["required"]:
            yield f"{name} is new and required of clients: give it a default"


def _extends(new: Any, old: Any) -> bool:
    """Whether a schema is the old one, or has more choices, or more items at its end."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return bool(new == old)
    ignored = {"sent", *(("minItems", "maxItems") if "prefixItems" in old else ())}
    keys = (old.keys() | new.keys()) - ignored
    return all(_is_kept(key, new.get(key), old.get(key)) for key in keys)


def _is_kept(key: str, new: Any, old: Any) -> bool:
    match key:
        case "enum" if new and old:
            return set(old) <= set(new)
        case "prefixItems" if new and old:
            return bool(new[: len(old)] == old)
        case "default" if isinstance(new, dict) and isinstance(old, dict):
            return old.items() <= new.items()
        case _ if "/" in key and old is None:  # a media type, which clients ask for by `Accept`
            return True
    return _extends(new, old)


def read() -> dict[str, Any]:
    """Returns the recorded entries."""
    recorded: dict[str, Any] = json.loads(FILE.read_text())
    return recorded


def main(arguments: list[str]) -> int:
    """Records today's entries with ``--write``, unless one of the old ones is broken."""
    found = entries(document())
    wrong = list(problems(read(), found)) if FILE.exists() else []
    for problem in wrong:
        sys.stderr.write(f"{problem}\n")
    if "--write" in arguments and not wrong:
        lines = (f"{json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in found.items())
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
