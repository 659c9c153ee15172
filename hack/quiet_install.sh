#!/usr/bin/env bash
# Runs an installer with readable output. Called by the Makefile: quiet_install.sh COMMAND...
# On a terminal the installer draws its own bars; elsewhere the line of each package is removed.
set -euo pipefail

if [ -t 2 ]; then
    exec "$@"
fi
"$@" 2>&1 | sed -u '/^ [+~-] /d' >&2
