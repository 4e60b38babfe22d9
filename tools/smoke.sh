#!/usr/bin/env bash
# A quick look, on N ranks, at whether the package works on TensorFlow TF. PYTEST_ARGS go to pytest.
step=smoke
source "$(dirname "$0")/environment.sh"

say "tests/parallel, the tests marked smoke, on TensorFlow $TF"
"$python" -m pytest -m smoke ${PYTEST_ARGS:-} tests/parallel ||
  die "smoke tests failed (above)." "One again: $venv/bin/python -m pytest FILE::NAME"
