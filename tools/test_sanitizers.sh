#!/usr/bin/env bash
# Runs the C++ tests under ThreadSanitizer, then under AddressSanitizer with UBSan; SANITIZERS=tsan or
# =asan under one of them. TESTS names some of them; default: all in which there may be something.
step=test-sanitizers
TF=2.15.1  # the tests know no TensorFlow; this is the venv that Bazel is shown
source "$(dirname "$0")/environment.sh"

# exports_test looks at the plain shared objects; the sanitizers' runtimes would be strangers there.
not_in_asan=(-//tests/cc:exports_test)
# Tests of one thread hold no race.
not_in_tsan=("${not_in_asan[@]}" -//tests/cc/fuzz:frame_fuzz_test -//tests/cc/fuzz:loop_fuzz_test)
for room in adapters base collectives coordinator device fusion; do
  not_in_tsan+=(-//tests/cc/$room/...)
done

for sanitizer in ${SANITIZERS:-tsan asan}; do
  say "$sanitizer"
  declare -n leaves_out=not_in_$sanitizer
  if [[ -n ${TESTS:-} ]]; then
    read -ra tests <<<"$TESTS"
  else
    tests=(//tests/cc/... "${leaves_out[@]}")
  fi
  bazel test --config=$sanitizer -- "${tests[@]}" ||
    die "tests failed under $sanitizer (above)." "One again: bazel test --config=$sanitizer //tests/cc/ROOM:NAME"
done
