#!/usr/bin/env bash
# Installs the Debian packages that are missing, if this user may; else prints the line to run.
#
# What counts is the file or command, not the package: a Bazel or a Python of the user's own is fine.
step=setup
source "$(dirname "$0")/environment.sh"
source tools/packages.sh

missing_packages() {
  command -v bazel >/dev/null || echo bazel-bootstrap
  command -v g++ >/dev/null || echo g++
  command -v ip >/dev/null || echo iproute2
  has_header gtest/gtest.h || echo libgtest-dev
  has_header gmock/gmock.h || echo libgmock-dev
  has_header sodium.h || echo libsodium-dev
  [[ -x $python ]] || tools/find_python.sh >/dev/null || echo python3.11 python3.11-venv
}

install_missing missing_packages
