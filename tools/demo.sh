#!/usr/bin/env bash
# Trains a model on handwritten digits on two processes. DEMO_ARGS go to the example.
step=demo
source "$(dirname "$0")/environment.sh"

case $TF in
  2.15.*) example=examples/estimator_digits.py ;;
  *) example=examples/session_digits.py ;; # later TensorFlows have no Estimator
esac
say "training $example on 2 processes"
exec "$venv/bin/horovodrun" -np 2 "$python" "$example" ${DEMO_ARGS:-}
