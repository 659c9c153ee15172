"""Checks docs/openapi.json, the description of the control API; `--write` writes it anew.

Called by `make check` and `make generate`.
"""

import json
import sys
from pathlib import Path

from flowmesh_api.v1.openapi import document

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "openapi.json"


def main() -> int:
    """Checks the file, or writes it with ``--write``; returns the exit code."""
    wanted = json.dumps(document(), indent=1, ensure_ascii=False) + "\n"
    if "--write" in sys.argv[1:]:
        FILE.write_text(wanted, encoding="utf-8")
    elif not FILE.is_file() or FILE.read_text(encoding="utf-8") != wanted:
        print(f"{FILE.relative_to(ROOT)} differs from the API; remedy: make generate")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
