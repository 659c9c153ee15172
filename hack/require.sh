#!/usr/bin/env bash
# Fails with a remedy if a prerequisite is missing. Called by the Makefile:
# require.sh python|go|numa COMMAND
set -euo pipefail

fail() {
    printf 'error: %s\n' "$1" >&2
    printf '       %s\n' "${@:2}" >&2
    exit 1
}

require_python() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || fail \
        "'$1' is not Python 3.11, which is required." \
        "Debian and Ubuntu: apt-get install python3.11 python3.11-venv; elsewhere: pyenv install 3.11." \
        "If it has another name: make PYTHON=/path/to/python3.11 ..."
    "$1" -c 'import ensurepip, venv' 2>/dev/null || fail \
        "'$1' cannot make virtual environments: its venv and ensurepip modules are missing." \
        "Debian and Ubuntu: apt-get install python3.11-venv (python3-venv on Debian 12)."
}

require_go() {
    "$1" version >/dev/null 2>&1 || fail \
        "'$1' does not run: Go builds the S3 and API servers that the tests use." \
        "Install Go 1.26 from https://go.dev/dl/ and put its bin folder on PATH, or: make GO=/path/to/go ..." \
        "The demo and 'make test-fast' do not need it."
}

require_numa() {
    "$1" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || fail \
        "libnuma.so.1 is missing: vLLM is linked against it." \
        "Debian and Ubuntu: apt-get install libnuma1; Fedora: dnf install numactl-libs; Alpine is not supported." \
        "'make test-fast' does not need it."
}

"require_$1" "$2"
