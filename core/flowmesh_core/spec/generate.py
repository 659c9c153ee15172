"""Writes the generated files: ``python -m flowmesh_core.spec.generate [--check]``.

``crds/*.yaml`` for clusters and the same inside the chart, since Helm packages no link's target;
``docs/schema.json`` and the same inside the package for editors; and the schema of a pool in the
chart's ``values.schema.json``, whose other parts are written by hand. With ``--check`` nothing is
written; the exit code is 1 where a file is out of date.
"""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from flowmesh_core.spec.resources import definitions, editor_schema, pool_values_schema

_NEVER_WRAP = 10_000
_HEADER = "# Generated from core/flowmesh_core/spec by `make generate`; do not edit.\n"
_ROOT = Path(__file__).parents[3]
_DEFINITIONS = ("crds", "charts/flowmesh/crds")
_CHART_VALUES = "charts/flowmesh/values.schema.json"
_POOL = re.compile(r'(?<=\n    "pool": )\{.*?\n    \}', re.DOTALL)


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
        _CHART_VALUES: _with_pool((_ROOT / _CHART_VALUES).read_text()),
    }


def _with_pool(text: str) -> str:
    """Returns the chart's schema with the generated definition of a pool, a field a line."""
    schema = pool_values_schema()
    fields = [f"        {json.dumps(k)}: {json.dumps(v)}" for k, v in schema["properties"].items()]
    others = [f"      {json.dumps(k)}: {json.dumps(v)}," for k, v in schema.items()
              if k != "properties"]  # fmt: skip
    lines = ["{", *others, '      "properties": {', ",\n".join(fields), "      }", "    }"]
    return _POOL.sub(lambda _: "\n".join(lines), text)


def outdated(root: Path) -> list[str]:
    """Returns the generated files that are missing or differ."""
    return [
        name
        for name, content in files().items()
        if not (root / name).is_file() or (root / name).read_text() != content
    ]


def write(root: Path) -> None:
    """Writes all generated files."""
    for name, content in files().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


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
    sys.exit(main(sys.argv[1:], _ROOT))
