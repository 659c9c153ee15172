#!/usr/bin/env bash
# Runs an installer with short output. Called by the Makefile: quiet_install.sh COMMAND...
# On a terminal it draws its own progress bars; elsewhere the lines per package are dropped.
set -euo pipefail

if [ -t 2 ]; then
    exec "$@"
fi
"$@" 2>&1 | sed -u '/^ [+~-] /d' >&2
