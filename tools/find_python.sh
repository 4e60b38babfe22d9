#!/usr/bin/env bash
# Prints the interpreter to make the venv for TF with; prints nothing and fails when there is none.
#
# Not on the path alone counts: a version manager's shim may answer for a Python that it lacks, and
# Debian ships Python without venv.
set -euo pipefail

case ${TF:-2.15.1} in
  2.15.*) versions="3.11" ;;
  *) versions="3.11 3.12 3.13 3.10" ;;
esac
for version in $versions; do
  for candidate in "python$version" "/usr/bin/python$version" python3; do
    if "$candidate" -c "
import ensurepip, sys, venv
sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      exit
    fi
  done
done
exit 1
