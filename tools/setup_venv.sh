#!/usr/bin/env bash
# Makes the venv for TF from its lock file; does nothing while both are unchanged.
step=setup
source "$(dirname "$0")/environment.sh"

stamp=$venv/.lock.sha256
want=$(sha256sum < "$lock")
if [[ -x $python && -f $stamp && $(< "$stamp") == "$want" ]]; then
  exit 0
fi

base=$(tools/find_python.sh) ||
  die "found no Python with venv that TensorFlow $TF runs on." \
    "Install one (Debian: apt-get install python3.11-venv)."
if [[ ! -x $python ]] || ! cmp -s "$venv/.base" <(echo "$base"); then
  say "making $venv with $base"
  rm -rf "$venv"
  "$base" -m venv "$venv"
  echo "$base" > "$venv/.base"
fi
rm -f "$stamp"
say "installing $(grep -vc '^#' "$lock") packages from $lock (TensorFlow is 200 to 300 MB; minutes)"
log=build/setup-$TF.log
mkdir -p build
# --no-deps: the lock is complete, and nothing that it does not name may slip in.
"$python" -m pip install --disable-pip-version-check --no-deps --progress-bar off -r "$lock" 2>&1 |
  tee "$log" |
  sed -u -n "s/^Collecting \([^ ]*\).*/[$step]   \1/p
             s/^Processing .*\/\([^-]*-[^-]*\)-[^/]*[.]whl .*/[$step]   \1/p
             s/^\(Installing collected packages\).*/[$step]   \1/p
             /^ERROR/p; /Retrying/p" ||
  die "pip failed; all that it said is in $log." \
    "Check the network and the disk, then run \`make setup TF=$TF\` again."
"$python" -m pip check --disable-pip-version-check >> "$log" 2>&1 ||
  die "$lock is not consistent: see the end of $log." \
    "requirements/README.md says how to lock again."
# A running Bazel server would not see that the TensorFlow behind the same path is another.
if command -v bazel > /dev/null; then bazel shutdown; fi
echo "$want" > "$stamp"
say "$venv is ready"
