#!/usr/bin/env bash
# Random programs of collectives for minutes, every result checked and memory watched.
#
# Arguments: --help lists them.
step=soak
source "$(dirname "$0")/environment.sh"

exec "$python" -m tests.programs.soak "$@"
