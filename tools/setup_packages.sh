#!/usr/bin/env bash
# Installs the Debian packages that are missing, if this user may; else prints the line to run.
#
# What counts is the file or command, not the package: a Bazel or a Python of the user's own is fine.
step=setup
source "$(dirname "$0")/environment.sh"

# Where the compiler and the repository rules look.
has_header() { [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]]; }

missing_packages() {
  command -v bazel >/dev/null || echo bazel-bootstrap
  command -v g++ >/dev/null || echo g++
  command -v ip >/dev/null || echo iproute2
  has_header gtest/gtest.h || echo libgtest-dev
  has_header gmock/gmock.h || echo libgmock-dev
  has_header sodium.h || echo libsodium-dev
  [[ -x $python ]] || tools/find_python.sh >/dev/null || echo python3.11 python3.11-venv
}

# As root; sudo only where it asks nothing.
as_root() {
  if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
  command -v apt-get >/dev/null && as_root true 2>/dev/null
}

packages=$(missing_packages | xargs)
if [[ -z $packages ]]; then exit 0; fi

line="apt-get update && apt-get install -y $packages"
if ! may_install; then
  die "these Debian packages are missing: $packages" \
    "Run as root: $line" "(elsewhere than on Debian: the same by other names), then \`make $step\` again."
fi
say "installing Debian packages: $packages"
options=(-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
as_root apt-get "${options[@]}" -qq update || die "apt-get update failed (above)." "Run as root: $line"
as_root env DEBIAN_FRONTEND=noninteractive \
  apt-get "${options[@]}" -q install -y --no-install-recommends $packages ||
  die "apt-get install failed (above)." "Run as root: $line"

packages=$(missing_packages | xargs)
[[ -z $packages ]] || die "still missing after apt-get installed them: $packages"
