#!/usr/bin/env bash
# Formats all Python and C++ of the project in place.
step=format
TF=2.15.1  # the venv with the formatters
source "$(dirname "$0")/environment.sh"

"$venv/bin/ruff" check --quiet --fix-only .
"$venv/bin/ruff" format --quiet .
find tf_ops tests \( -name '*.h' -o -name '*.cc' -o -name '*.inc' \) -print0 | xargs -0 "$venv/bin/clang-format" -i
