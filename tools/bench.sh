#!/usr/bin/env bash
# Measures this tree beside its peers; tests/bench has the parts. Builds what it needs first, and goes
# on with what there is.
#
# Arguments: --help lists them. BENCH_TORCH=0 leaves torch out, BENCH_PEER=0 the peer.
step=bench
TF=2.15.1  # the one that the peer runs on, too
source "$(dirname "$0")/environment.sh"

remarks=()
# Says something, and has it printed with the figures.
remark() {
  say "$1"
  remarks+=(--remark "$1")
}

for argument in "$@"; do
  # Nothing needs to be built to print the help.
  if [[ $argument == -h || $argument == --help ]]; then
    exec "$(command -v python3)" -m tests.bench "$@"
  fi
done
# Nor to refuse wrong arguments. Status 2 is argparse's; without a python3 they are refused later.
status=0
if command -v python3 >/dev/null; then
  python3 -m tests.bench --check "$@" || status=$?
fi
((status != 2)) || exit 2

if ! { tools/setup.sh && tools/build.sh; }; then
  if [[ -x $python ]] && "$python" -I -c 'import horovod' 2>/dev/null; then
    remark "this tree could not be built; ours is the package that $venv had"
  else
    remark "this tree could not be built, and $venv has no older build of it: ours is left out"
  fi
fi
tools/setup_bench.sh
if ! PYTHON_BIN_PATH=$python bazel build //tests/bench/cc:all; then
  if [[ -x build/bazel-bin/tests/bench/cc/core_rank ]]; then
    remark "the programs without TensorFlow could not be built; they are those of an earlier build"
  else
    remark "the programs without TensorFlow could not be built, and are left out"
  fi
fi

for driver in "$PWD/.venv-bench/bin/python" "$python" "$(command -v python3)"; do
  [[ ! -x $driver ]] || exec "$driver" -m tests.bench "$@" "${remarks[@]}"
done
die "there is no Python to measure with." "Install one (Debian: apt-get install python3.11-venv)."
