#!/usr/bin/env bash
# Regenerates the files that come from the code: custom resources, JSON schema, the table of names,
# the page of engines, the description of the API, the dashboards.
set -euo pipefail
"$VENV/bin/python" hack/check_names.py --write
"$VENV/bin/python" hack/engine_docs.py --write
"$VENV/bin/python" hack/openapi_document.py --write
"$VENV/bin/python" -m hack.dashboards.write --write
if [ -f core/flowmesh_core/spec/generate.py ]; then
    "$VENV/bin/python" -m flowmesh_core.spec.generate
fi
