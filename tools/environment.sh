# What every script here starts with: where things are for the TensorFlow in TF, and how to speak.
# To be sourced, with `step` set to the script's name. Leaves the shell in the root of the project.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

: "${step:?set it before sourcing tools/environment.sh}"
TF=${TF:-2.15.1}
if [[ $TF == 2.15.1 ]]; then venv=.venv; else venv=.venv-$TF; fi
lock=requirements/tf-$TF.lock
stage=build/stage-$TF
python=$PWD/$venv/bin/python
# The one that the TensorFlow repository rule asks (third_party/tf).
export PYTHON_BIN_PATH=$python

say() { echo "[$step] $*"; }

# Args: what is wrong, then what to do, a line each.
die() {
  echo "[$step] error: $1" >&2
  shift
  local line
  for line in "$@"; do echo "[$step]        $line" >&2; done
  exit 1
}

if [[ ! -f $lock ]]; then
  die "there is no $lock for TF=$TF; there are: $(echo requirements/tf-*.lock)" \
    "requirements/README.md says how to add one."
fi
