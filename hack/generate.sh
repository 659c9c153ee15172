#!/usr/bin/env bash
# Writes anew what is generated from the code: custom resources, JSON schema, the table of names.
set -euo pipefail
"$VENV/bin/python" hack/check_names.py --write
if [ -f core/flowmesh_core/spec/generate.py ]; then
    "$VENV/bin/python" -m flowmesh_core.spec.generate
fi
