#!/usr/bin/env bash
# Removes what was built; the venvs stay (they take minutes), but without our package.
step=clean
source "$(dirname "$0")/environment.sh"

for python in .venv*/bin/python; do
  # The Horovod in the peer's venv is not ours, and it takes minutes to build.
  if [[ -x $python && $python != .venv-peer/* ]]; then
    "$python" -m pip uninstall --disable-pip-version-check -q -y horovod 2>/dev/null || true
    rm -f "$(dirname "$python")/../.horovod-"*.sha256
  fi
done
if command -v bazel >/dev/null; then
  bazel clean --expunge
fi
rm -rf build
