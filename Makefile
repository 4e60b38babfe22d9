# Thin: each target is a script in tools/. TF=2.15.1 (default) or TF=2.21.0 chooses the TensorFlow
# and with it the venv.

TF ?= 2.15.1
export TF

.PHONY: help setup build test smoke check format demo test-sanitizers test-faults soak bench clean

help:
	@echo "make demo             set up, build, and train a model on two processes"
	@echo "make test             set up, build, and run all tests"
	@echo "make setup            Debian packages and the venv"
	@echo "make build            Bazel, then install the package into the venv"
	@echo "make smoke            a quick test on N ranks, for TF=2.21.0"
	@echo "make check            format, lint, types, layers;   make format cures the first"
	@echo "make test-sanitizers  C++ tests under TSan, ASan and UBSan"
	@echo "make test-faults      ranks that die or stop at 280 random moments: 4 minutes"
	@echo "make bench            this tree beside its peers: about 30 minutes; QUICK=1: under 4"
	@echo "make clean            remove what was built; the venvs stay"
	@echo "make soak             random programs of collectives on 4 ranks, memory watched: 10 minutes"
	@echo "TF=2.21.0 uses that TensorFlow, in a venv of its own"

setup:
	@tools/setup.sh

build: setup
	@tools/build.sh

test: build
	@tools/test.sh

smoke: build
	@tools/smoke.sh

# The linters live in the main venv, and the sanitizers' tests know no TensorFlow.
check format test-sanitizers: override TF = 2.15.1

check: setup
	@tools/check.sh

format: setup
	@tools/format.sh

demo: build
	@tools/demo.sh

test-sanitizers: setup
	@tools/test_sanitizers.sh

# FAULTS_ARGS go to the script, e.g. FAULTS_ARGS="--seed 7 --only tcp/kill".
test-faults: build
	@tools/test_faults.sh $(FAULTS_ARGS)

# It builds by itself, since it goes on with what there is where something cannot be built.
# BENCH_ARGS go to the script, e.g. BENCH_ARGS="--only 'eager 4 B' --no-wait".
bench:
	@tools/bench.sh $(if $(filter-out 0,$(QUICK)),--quick) $(BENCH_ARGS)

# SOAK_ARGS go to the script, e.g. SOAK_ARGS="--minutes 5 --transport tcp".
soak: build
	@tools/soak.sh $(SOAK_ARGS)

clean:
	@tools/clean.sh
