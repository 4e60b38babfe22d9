"""`tools/bench.sh` where something cannot be built, or is not asked for rightly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 60


class _Tree:
    """A tree with the script, and with fakes of what it calls that note each call.

    Args:
      root: an empty folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._calls = root / "calls"
        for name in ("tools/bench.sh", "tools/environment.sh", "requirements/tf-2.15.1.lock"):
            (root / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, root / name)
        (root / "tests").symlink_to(ROOT / "tests")
        for name in ("setup.sh", "build.sh", "setup_bench.sh"):
            self.fake(f"tools/{name}")
        self.fake("bin/bazel")
        self.fake(".venv-bench/bin/python")
        python3 = root / "bin" / "python3"
        python3.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python3.chmod(0o755)

    def fake(self, name: str, status: int = 0) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{path.name} $@" >> {self._calls}\nexit {status}\n')
        path.chmod(0o755)

    def bench(self, *arguments: str) -> tuple[int, str, list[str]]:
        """Returns the exit status, what was printed, and the calls."""
        done = subprocess.run(
            [str(self.root / "tools" / "bench.sh"), *arguments],
            env={**os.environ, "PATH": f"{self.root / 'bin'}:/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        calls = self._calls.read_text().splitlines() if self._calls.exists() else []
        return done.returncode, done.stdout, calls


@pytest.fixture
def tree(tmp_path: Path) -> _Tree:
    return _Tree(tmp_path)


def test_all_is_built_and_then_measured(tree: _Tree) -> None:
    status, _, calls = tree.bench("--quick")
    assert status == 0
    assert [call.split()[0] for call in calls] == [
        "setup.sh", "build.sh", "setup_bench.sh", "bazel", "python",
    ]  # fmt: skip
    assert calls[-1] == "python -m tests.bench --quick"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--rounds", "0"], "0 is not at least 1"),
        (["--only", "allreduce 5 B"], "no case 'allreduce 5 B'"),
        (["--systems", "nccl"], "no system 'nccl'"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_built(
    tree: _Tree, arguments: list[str], text: str
) -> None:
    status, output, calls = tree.bench(*arguments)
    assert status == 2 and text in output
    assert calls == []


def test_help_builds_nothing(tree: _Tree) -> None:
    status, output, calls = tree.bench("--help")
    assert status == 0 and "--rounds" in output
    assert calls == []


def test_a_tree_that_cannot_be_built_is_left_out_and_the_others_measured(tree: _Tree) -> None:
    tree.fake("tools/build.sh", status=1)
    status, _, calls = tree.bench()
    assert status == 0
    assert calls[-1].startswith("python -m tests.bench --remark this tree could not be built, and")
    assert calls[-1].endswith("ours is left out")


def test_the_package_of_an_earlier_build_is_named_so(tree: _Tree) -> None:
    tree.fake("tools/setup.sh", status=1)
    tree.fake(".venv/bin/python")
    _, _, calls = tree.bench()
    assert calls[-1].endswith(
        "--remark this tree could not be built; ours is the package that .venv had"
    )


@pytest.mark.parametrize(
    ("earlier", "text"),
    [(False, "could not be built, and are left out"), (True, "those of an earlier build")],
)
def test_programs_that_cannot_be_built_are_said_to_be_old_or_left_out(
    tree: _Tree, earlier: bool, text: str
) -> None:
    tree.fake("bin/bazel", status=1)
    if earlier:
        tree.fake("build/bazel-bin/tests/bench/cc/core_rank")
    status, _, calls = tree.bench()
    assert status == 0
    assert calls[-1].startswith("python -m tests.bench --remark the programs without TensorFlow")
    assert text in calls[-1]
