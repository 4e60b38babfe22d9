# Debian packages that a script needs. To be sourced, after tools/environment.sh.

# Where the compiler and the repository rules look.
has_header() { [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]]; }

# As root; sudo only where it asks nothing.
as_root() {
  if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
  command -v apt-get >/dev/null && as_root true 2>/dev/null
}

# Installs what a function says is missing, if this user may; else dies with the line to run.
#
# Args: the function, which prints the names of packages, and prints nothing when none is missing.
install_missing() {
  local missing=$1 packages line
  packages=$("$missing" | xargs)
  if [[ -z $packages ]]; then return; fi

  line="apt-get update && apt-get install -y $packages"
  if ! may_install; then
    die "these Debian packages are missing: $packages" \
      "Run as root: $line" "(elsewhere than on Debian: the same by other names), then \`make $step\` again."
  fi
  say "installing Debian packages: $packages"
  local options=(-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  as_root apt-get "${options[@]}" -qq update || die "apt-get update failed (above)." "Run as root: $line"
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get "${options[@]}" -q install -y --no-install-recommends $packages ||
    die "apt-get install failed (above)." "Run as root: $line"

  packages=$("$missing" | xargs)
  [[ -z $packages ]] || die "still missing after apt-get installed them: $packages"
}
