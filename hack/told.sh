#!/usr/bin/env bash
# Runs an installer so that one sees what it does. Called by the Makefile: told.sh COMMAND...
# On a terminal it draws its own bars; elsewhere its lines are kept, but not one for each package.
set -euo pipefail

if [ -t 2 ]; then
    exec "$@"
fi
"$@" 2>&1 | sed -u '/^ [+~-] /d' >&2
