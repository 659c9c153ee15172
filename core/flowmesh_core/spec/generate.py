"""Writes the generated files: ``python -m flowmesh_core.spec.generate [--check]``.

``crds/*.yaml`` for clusters and the same inside the chart, since Helm packages no link's target;
``docs/schema.json`` and the same inside the package for editors; the line of the chart's schema of
values that describes a pool. With ``--check`` nothing is written; the exit code is 1 where a file
is out of date.
"""

import io
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from flowmesh_core.spec.resources import definitions, editor_schema
from flowmesh_core.spec.structural import PRESERVE

_NEVER_WRAP = 10_000
_DEFINITIONS = ("crds", "charts/flowmesh/crds")
_VALUES = "charts/flowmesh/values.schema.json"
_KEYWORDS = (
    *("type", "enum", "pattern", "required", "minimum", "maximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "minProperties", "maxProperties"),
)
_POOL = re.compile(r'^    "pool": .*(?=,$)', re.MULTILINE)
_HEADER = "# Generated from core/flowmesh_core/spec by `make generate`; do not edit.\n"


def files() -> dict[str, str]:
    """Returns the content of every generated file, by path below the repository's root."""
    schema = json.dumps(editor_schema(), indent=2, ensure_ascii=False) + "\n"
    return {
        **{
            f"{folder}/{name}.yaml": _HEADER + _yaml(crd)
            for name, crd in definitions().items()
            for folder in _DEFINITIONS
        },
        "docs/schema.json": schema,
        "core/flowmesh_core/spec/schema.json": schema,
    }


def outdated(root: Path) -> list[str]:
    """Returns the generated files that are missing or differ."""
    return [
        name
        for name, content in _all(root).items()
        if not (root / name).is_file() or (root / name).read_text() != content
    ]


def write(root: Path) -> None:
    """Writes all generated files."""
    for name, content in _all(root).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def pool_schema() -> dict[str, Any]:
    """Returns the JSON schema of a pool in the chart's values: the spec of its custom resource.

    Unknown fields are refused, which the API server only drops.
    """
    (version,) = definitions()["flowmeshworkerpools"]["spec"]["versions"]
    spec = _closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    del spec["required"]  # the chart has defaults
    return {**spec, "type": ["object", "null"]}


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a structural schema as JSON schema, without descriptions and with no other fields."""
    made: dict[str, Any] = {key: schema[key] for key in _KEYWORDS if key in schema}
    if "items" in schema:
        made["items"] = _closed(schema["items"])
    if isinstance(schema.get("additionalProperties"), Mapping):
        made["additionalProperties"] = _closed(schema["additionalProperties"])
    if "properties" in schema:
        made["properties"] = {n: _closed(inner) for n, inner in schema["properties"].items()}
        made["additionalProperties"] = bool(schema.get(PRESERVE))
    return made


def _all(root: Path) -> dict[str, str]:
    """Returns every generated file, with those of which only a part is generated."""
    values = root / _VALUES
    if not values.is_file():
        return files()
    line = f'    "pool": {json.dumps(pool_schema(), separators=(", ", ": "))}'
    return {**files(), _VALUES: _POOL.sub(lambda _: line, values.read_text())}


def main(args: list[str], root: Path) -> int:
    """Writes or checks; returns the exit code."""
    if "--check" not in args:
        write(root)
        return 0
    for name in (found := outdated(root)):
        sys.stderr.write(f"{name} is out of date: run make generate\n")
    return 1 if found else 0


def _yaml(value: Any) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # typed as None
    yaml.width = _NEVER_WRAP
    out = io.StringIO()
    yaml.dump(value, out)
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[3]))
