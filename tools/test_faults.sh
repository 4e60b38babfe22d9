#!/usr/bin/env bash
# Faults at random moments, in jobs of a few ranks; prints a table. tests/faults has the parts.
#
# Arguments: --help lists them.
step=test-faults
source "$(dirname "$0")/environment.sh"

exec "$python" -m tests.faults "$@"
