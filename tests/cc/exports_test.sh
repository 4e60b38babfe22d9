#!/usr/bin/env bash
# What leaves the two shared objects: the C API from the core, from the adapter only the record of
# the TensorFlow it was built for; and what they need: no TensorFlow in the core, no library that a
# user would have to install.
#
# Usage: exports_test.sh LIBHOROVOD_CORE.SO TF_OPS.SO
set -euo pipefail
core=$1
adapter=$2
failed=0

fail() {
  echo "FAILED: $1" >&2
  failed=1
}

defined() { nm -D --defined-only "$1" | awk '{ print $NF }'; }
needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }

[[ $(defined "$core") == *hvd_* ]] || fail "the core exports no hvd_ symbol"
if others=$(defined "$core" | grep -v '^hvd_'); then
  fail "the core exports more than hvd_*: $(xargs <<< "$others")"
fi
if [[ $(defined "$adapter") != hvd_tf_built_for ]]; then
  fail "the adapter exports other than hvd_tf_built_for: $(defined "$adapter" | xargs)"
fi

system='^(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt|ld-linux.*)\.so'
if others=$(needed "$core" | grep -vE "$system"); then
  fail "the core needs: $(xargs <<< "$others")"
fi
[[ $(needed "$adapter") == *libhorovod_core.so* ]] || fail "the adapter does not need the core"
ours='^lib(horovod_core|tensorflow_framework)\.so'
if others=$(needed "$adapter" | grep -vE "$system" | grep -vE "$ours"); then
  fail "the adapter needs: $(xargs <<< "$others")"
fi
[[ $(readelf -d "$adapter") == *'[$ORIGIN/../lib]'* ]] || fail "the adapter does not look in ../lib"
exit $failed
