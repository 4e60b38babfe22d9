#!/usr/bin/env bash
# Format, lint, types and layers. Goes through all of them and fails at the end.
step=check
TF=2.15.1  # the venv with the linters
source "$(dirname "$0")/environment.sh"

failed=()

# Args: name, then the command.
check() {
  local name=$1
  shift
  say "$name"
  "$@" || failed+=("$name")
}

mapfile -t cc_files < <(find tf_ops tests -name '*.h' -o -name '*.cc' -o -name '*.inc')
check "ruff format" "$venv/bin/ruff" format --check --quiet .
check "ruff check" "$venv/bin/ruff" check --quiet .
check "mypy" "$python" -m mypy python/horovod tests/bench
check "clang-format" "$venv/bin/clang-format" --dry-run -Werror --ferror-limit=1 "${cc_files[@]}"
check "layers and tree" "$python" -m pytest -q tests/unit/test_layers.py tests/unit/test_tree.py

((${#failed[@]} == 0)) || die "failed: ${failed[*]}" "\`make format\` cures what is only format."
say "ok"
