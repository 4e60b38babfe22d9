# Making a venv from a lock file. To be sourced, after tools/environment.sh.
#
# A venv is current when its stamp, which is written last, says that it was made from the lock as it is.

# Args: the folder of a venv, its lock file.
venv_is_current() {
  local stamp=$1/.lock.sha256
  [[ -x $1/bin/python && -f $stamp && $(< "$stamp") == "$(sha256sum < "$2")" ]]
}

# To be called when all is done that belongs to the venv. Args: as above.
mark_venv_current() { sha256sum < "$2" > "$1/.lock.sha256"; }

# Makes the venv with the Python for TF and installs the lock into it; it is not marked current yet.
#
# Args: as above, the log file, and what to type to have it done again.
make_venv() {
  local venv=$1 lock=$2 log=$3 again=$4 base
  base=$(tools/find_python.sh) ||
    die "found no Python with venv that TensorFlow $TF runs on." \
      "Install one (Debian: apt-get install python3.11-venv)."
  if [[ ! -x $venv/bin/python ]] || ! cmp -s "$venv/.base" <(echo "$base"); then
    say "making $venv with $base"
    rm -rf "$venv"
    "$base" -m venv "$venv" || die "$base could not make $venv (above)."
    echo "$base" > "$venv/.base"
  fi
  rm -f "$venv/.lock.sha256"
  local large=""
  if grep -q '^tensorflow' "$lock"; then large=" (TensorFlow is 200 to 300 MB; minutes)"; fi
  say "installing $(grep -vc '^#' "$lock") packages from $lock$large"
  mkdir -p "$(dirname "$log")"
  # --no-deps: the lock is complete, and nothing that it does not name may slip in.
  "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps --progress-bar off -r "$lock" 2>&1 |
    tee "$log" |
    sed -u -n "s/^Collecting \([^ ]*\).*/[$step]   \1/p
               s/^Processing .*\/\([^-]*-[^-]*\)-[^/]*[.]whl .*/[$step]   \1/p
               s/^\(Installing collected packages\).*/[$step]   \1/p
               /^ERROR/p; /Retrying/p" ||
    die "pip failed; all that it said is in $log." \
      "Check the network and the disk, then run \`$again\` again."
  # What wants `tensorflow` has it where the lock has tensorflow-cpu, which pip does not know.
  local known='^No broken requirements found' wrong
  if grep -q '^tensorflow_cpu==' "$lock"; then known+='| requires tensorflow, which is not installed\.$'; fi
  wrong=$("$venv/bin/python" -m pip check --disable-pip-version-check 2>&1 | tee -a "$log" | grep -vE "$known") || true
  [[ -z $wrong ]] ||
    die "$lock is not consistent: see the end of $log." \
      "requirements/README.md says how to lock again."
}
