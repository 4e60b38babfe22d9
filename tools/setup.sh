#!/usr/bin/env bash
# Makes this machine ready to build and test: Debian packages, then the venv for TF.
#
# Nothing is done twice: what is there stays.
step=setup
source "$(dirname "$0")/environment.sh"

tools/setup_packages.sh
tools/setup_venv.sh
