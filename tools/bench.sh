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

if ! { tools/setup.sh && tools/build.sh; }; then
  "$python" -I -c 'import horovod' 2>/dev/null ||
    die "this tree cannot be built (above), and $venv has no older build of it to be measured." \
      "Cure what is said above, then \`make bench\` again."
  remark "this tree could not be built; ours is the package that $venv had"
fi
tools/setup_bench.sh
if [[ -d tests/bench/cc ]]; then
  PYTHON_BIN_PATH=$python bazel build //tests/bench/cc:all ||
    remark "the programs without TensorFlow could not be built (above)"
fi

driver=$PWD/.venv-bench/bin/python
[[ -x $driver ]] || driver=$python
exec "$driver" -m tests.bench "$@" "${remarks[@]}"
