#!/usr/bin/env bash
# Runs the tests against the installed package. In the main environment all of them; for another
# TensorFlow what depends on it, tests/parallel.
#
# PYTEST_ARGS go to pytest.
step=test
source "$(dirname "$0")/environment.sh"

suites=(tests/parallel)
if [[ $TF == 2.15.1 ]]; then
  say "C++ tests"
  bazel test //... || die "C++ tests failed (above)." "One again: bazel test //tests/cc/ROOM:NAME"
  suites=(tests/unit tests/fuzz tests/core tests/programs tests/faults tests/parallel tests/integration)
fi
say "Python tests on TensorFlow $TF: ${suites[*]}"
"$python" -m pytest ${PYTEST_ARGS:-} "${suites[@]}" ||
  die "Python tests failed (above)." "One again: $venv/bin/python -m pytest FILE::NAME"
