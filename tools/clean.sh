#!/usr/bin/env bash
# Removes what was built; the venvs stay (they take minutes), but without our package.
step=clean
source "$(dirname "$0")/environment.sh"

for python in .venv*/bin/python; do
  if [[ -x $python ]]; then
    "$python" -m pip uninstall --disable-pip-version-check -q -y horovod 2>/dev/null || true
    rm -f "$(dirname "$python")/../.horovod-"*.sha256
  fi
done
if command -v bazel >/dev/null; then
  bazel clean --expunge
fi
rm -rf build
