#!/usr/bin/env bash
# Runs the C++ tests under ThreadSanitizer, then under AddressSanitizer with UBSan.
step=test-sanitizers
TF=2.15.1  # the tests know no TensorFlow; this is the venv that Bazel is shown
source "$(dirname "$0")/environment.sh"

for sanitizer in tsan asan; do
  say "$sanitizer"
  # exports_test looks at the plain shared objects; the sanitizers' runtimes would be strangers there.
  bazel test --config=$sanitizer -- //tests/cc/... -//tests/cc:exports_test ||
    die "tests failed under $sanitizer (above)." "One again: bazel test --config=$sanitizer //tests/cc/ROOM:NAME"
done
