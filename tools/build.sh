#!/usr/bin/env bash
# Builds the shared objects with Bazel and installs the package into the venv for TF.
#
# What is installed is a copy, so tests test what a user gets; it is made again when something in it
# has changed. Ends with an import test when a shared object has.
step=build
source "$(dirname "$0")/environment.sh"

targets=(//tf_ops/runtime:libhorovod_core.so //tf_ops/adapters/tf:_tf_ops.so)

# One at a time: all TensorFlows share Bazel's output folder.
mkdir -p build
exec 9> build/.lock
flock -n 9 || { say "another build is running, waiting for it"; flock 9; }

say "bazel build for TensorFlow $TF"
bazel build "${targets[@]}" 9>&- || die "bazel build failed (above)."
"$python" -m tools.stage "$stage" build/bazel-bin ||
  die "the package could not be staged (above)."
"$python" -m tools.install "$stage" "$venv" || die "the package could not be installed (above)."
