#!/usr/bin/env bash
# Makes the venv for TF from its lock file; does nothing while both are unchanged.
step=setup
source "$(dirname "$0")/environment.sh"
source tools/venv.sh

if venv_is_current "$venv" "$lock"; then exit 0; fi

make_venv "$venv" "$lock" "build/setup-$TF.log" "make setup TF=$TF"
# A running Bazel server would not see that the TensorFlow behind the same path is another.
if command -v bazel > /dev/null; then bazel shutdown; fi
mark_venv_current "$venv" "$lock"
say "$venv is ready"
