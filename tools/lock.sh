#!/usr/bin/env bash
# Writes requirements/NAME.lock: what requirements/NAME.in resolves to today, and what
# requirements/NAME.no-deps.in, where there is one, names without what it asks for.
#
# Usage: tools/lock.sh NAME PYTHON, with the oldest Python that the venv may be made with.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:?"usage: tools/lock.sh NAME PYTHON"}
python=${2:?"usage: tools/lock.sh NAME PYTHON"}
input=requirements/$name.in
lock=requirements/$name.lock

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --upgrade pip
"$scratch/venv/bin/python" -m pip install --progress-bar off -r "$input"
if [[ -f requirements/$name.no-deps.in ]]; then
  "$scratch/venv/bin/python" -m pip install --progress-bar off --no-deps -r "requirements/$name.no-deps.in"
fi
{
  echo "# Written by tools/lock.sh from $name.in with $("$python" --version); do not edit."
  "$scratch/venv/bin/python" -m pip freeze --all --exclude pip
} > "$scratch/lock"
if grep -nE '://|@ ' "$scratch/lock"; then
  echo "error: the lock names places instead of versions (lines above)" >&2
  exit 1
fi
mv "$scratch/lock" "$lock"
echo "[lock] $lock: $(grep -vc '^#' "$lock") packages"
