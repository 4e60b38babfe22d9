#!/usr/bin/env bash
# Gets what `make bench` needs besides our own build: its Debian packages, the driver's venv, and the
# peer, another Horovod, built once into a venv of its own. What cannot be had is said and left out.
#
# BENCH_TORCH=0: without torch. BENCH_PEER=0: without the peer.
step=bench
TF=2.15.1  # what the peer runs on
source "$(dirname "$0")/environment.sh"
source tools/packages.sh
source tools/venv.sh

peer=.venv-peer
driver=.venv-bench
peer_stamp=$peer/.peer.sha256
peer_version=0.28.1  # tests/bench/systems.py has it in the titles, docs/benchmarks.md in its text
torch_version=2.13.0
build_limit_s=1800
torch_limit_s=900

missing_packages() {
  command -v mpicxx >/dev/null || echo libopenmpi-dev
  command -v mpirun >/dev/null || echo openmpi-bin
  command -v valgrind >/dev/null || echo valgrind
  command -v iperf3 >/dev/null || echo iperf3
}

make_driver() {
  if venv_is_current $driver requirements/bench.lock; then return; fi
  make_venv $driver requirements/bench.lock build/bench/setup-driver.log "make bench"
  mark_venv_current $driver requirements/bench.lock
}

# Runs what prints nothing for minutes, with a line now and then.
#
# Args: who, for these lines; the log that gets its output; after how many seconds to end it; the
# command. Returns its status, 124 when it had to be ended.
run_long() {
  local who=$1 log=$2 limit_s=$3 pid start_s=$SECONDS next_s=$((SECONDS + 15)) status=0
  shift 3
  mkdir -p "$(dirname "$log")"
  timeout "$limit_s" "$@" > "$log" 2>&1 &
  pid=$!
  trap 'kill $pid 2>/dev/null || true; exit 130' INT TERM HUP
  while kill -0 $pid 2>/dev/null; do
    sleep 1
    if ((SECONDS >= next_s)); then
      say "  $who: $((SECONDS - start_s)) s"
      next_s=$((SECONDS + 15))
    fi
  done
  wait $pid || status=$?
  trap - INT TERM HUP
  if ((status != 0)); then tail -n 15 "$log" | sed "s/^/[$step]   /"; fi
  return $status
}

torch_is_current() {
  "$driver/bin/python" -I -c "
import importlib.metadata as m, sys
sys.exit(m.version('torch').partition('+')[0] != '$torch_version')" 2>/dev/null
}

# It has a step of its own, since it is large and can be done without.
install_torch() {
  local log=build/bench/torch.log
  if torch_is_current; then return; fi
  say "installing torch $torch_version, whose gloo is measured as well (BENCH_TORCH=0 leaves it out)"
  run_long "torch is installed" "$log" $torch_limit_s \
    "$driver/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
    "torch==$torch_version" || die "pip failed or took longer than $torch_limit_s s: see $log."
}

# What the peer is built with; another answer means to build it again.
peer_configuration() {
  echo HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_GLOO=1
  if command -v mpicxx >/dev/null; then echo HOROVOD_WITH_MPI=1; else echo HOROVOD_WITHOUT_MPI=1; fi
}

peer_hash() {
  { echo "horovod==$peer_version"; peer_configuration; cat requirements/peer.lock; } | sha256sum
}

peer_is_current() { [[ -f $peer_stamp && $(< "$peer_stamp") == "$(peer_hash)" ]]; }

make_peer() {
  if peer_is_current; then return; fi
  if ! command -v g++ >/dev/null; then die "no g++ to build the peer with." "Install it (Debian: apt-get install g++)."; fi
  rm -f "$peer_stamp"
  if ! venv_is_current $peer requirements/peer.lock; then
    make_venv $peer requirements/peer.lock build/bench/setup-peer.log "make bench"
    mark_venv_current $peer requirements/peer.lock
  fi
  command -v mpicxx >/dev/null || say "no mpicxx: the peer is built with Gloo alone"
  build_peer
  "$peer/bin/horovodrun" --check-build > build/bench/peer-check.log 2>&1 ||
    die "the peer was built and does not load: see build/bench/peer-check.log."
  peer_hash > "$peer_stamp"
  say "the peer is ready"
}

build_peer() {
  local log=build/bench/peer.log
  say "building the peer, horovod $peer_version, once; 2 to 5 minutes, log in $log"
  # Its build takes the first cmake on the path, and the newest ones no longer read its files.
  # No cache: it may hold one that was built with another configuration.
  run_long "the peer builds" "$log" $build_limit_s \
    env PATH="$PWD/$peer/bin:$PATH" $(peer_configuration) \
    "$peer/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
    --no-cache-dir --no-build-isolation --no-deps --force-reinstall "horovod==$peer_version" ||
    die "the peer does not build (its last lines are above; all of them in $log)."
}

# Args: the status of a part that failed, and what there is not. Ctrl-C ends the other parts as well.
go_on_without() {
  (($1 != 130)) || exit 130
  say "going on without $2"
}

# Each in a shell of its own, so that what one lacks ends that one alone.
(install_missing missing_packages) || go_on_without $? "them"
(make_driver) || go_on_without $? "$driver: no picture, and no torch"
if [[ ${BENCH_TORCH:-1} != 0 && -x $driver/bin/python ]]; then
  (install_torch) || go_on_without $? "torch"
fi
if [[ ${BENCH_PEER:-1} != 0 ]]; then
  (make_peer) || go_on_without $? "the peer: its columns stay empty"
fi
