#!/usr/bin/env bash
# Runs every static check of the code and names those that fail. Called by `make check` with the
# folders to check.
set -uo pipefail
bin=$VENV/bin
failed=()

check() {
    local name=$1 start=$SECONDS output
    shift
    if output=$("$@" 2>&1); then
        printf '%-16s ok, %d s\n' "$name" $((SECONDS - start))
    else
        printf '%-16s FAILED\n%s\n' "$name" "$output"
        failed+=("$name")
    fi
}

packages=(api documents core store control operator worker cli sim serving sdk)
check "ruff check" "$bin/ruff" check --quiet "$@"
check "ruff format" "$bin/ruff" format --quiet --check "$@"
check "mypy" "$bin/python" -m mypy --no-error-summary "${packages[@]}" hack
check "import rules" "$bin/lint-imports" --no-cache --config .importlinter
check "names" "$bin/python" hack/check_names.py
check "attacks" "$bin/python" hack/check_attacks.py
check "words" "$bin/python" hack/check_words.py
check "engines page" "$bin/python" hack/engine_docs.py
check "openapi" "$bin/python" hack/openapi_document.py
check "dashboards" "$bin/python" -m hack.dashboards.write
if [ -f core/flowmesh_core/spec/generate.py ]; then
    check "generated files" "$bin/python" -m flowmesh_core.spec.generate --check
fi

if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}" >&2
    echo "'make format' and 'make generate' correct style and generated files" >&2
    exit 1
fi
echo "all checks passed"
