"""Rules about the source tree itself, which no compiler checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 500
FOLDERS = ("tf_ops", "python", "tests", "tools", "examples", "third_party")
SOURCES = (".h", ".cc", ".cu", ".py", ".sh", ".bzl")
# The environment is read in one place, so that every knob has a row in config.def.
MAY_READ_ENVIRONMENT = "tf_ops/base/config.cc"


def sources(
    root: Path, suffixes: tuple[str, ...], folders: tuple[str, ...] = FOLDERS
) -> list[Path]:
    """Returns the files with one of the suffixes, sorted."""
    found = (path for folder in folders for path in (root / folder).rglob("*"))
    return sorted(path for path in found if path.suffix in suffixes and path.is_file())


def long_files(root: Path) -> Iterator[str]:
    """Yields a sentence for each file that has become more than one idea."""
    for path in sources(root, SOURCES):
        lines = len(path.read_text().splitlines())
        if lines > MAX_LINES:
            yield f"{path.relative_to(root)} has {lines} lines, more than {MAX_LINES}"


def environment_reads(root: Path) -> Iterator[str]:
    """Yields a sentence for each place in the core and adapters that reads the environment."""
    for path in sources(root, (".h", ".cc", ".cu"), ("tf_ops",)):
        where = path.relative_to(root).as_posix()
        if where == MAY_READ_ENVIRONMENT:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\b(secure_)?getenv\b|\benviron\b", line.split("//")[0]):
                yield f"{where}:{number} reads the environment; only {MAY_READ_ENVIRONMENT} may"


def wrong_guards(root: Path) -> Iterator[str]:
    """Yields a sentence for each header whose guard is not its own path."""
    for path in sources(root, (".h",), ("tf_ops", "tests")):
        where = path.relative_to(root).as_posix()
        want = re.sub(r"[^A-Z0-9]", "_", where.upper()) + "_"
        if f"\n#ifndef {want}\n#define {want}\n" not in "\n" + path.read_text():
            yield f"{where} has no include guard {want}"


@pytest.mark.parametrize("rule", [long_files, environment_reads, wrong_guards])
def test_the_tree_keeps_the_rule(rule) -> None:
    assert list(rule(ROOT)) == []


@pytest.mark.parametrize(
    ("rule", "where", "text"),
    [
        (long_files, "tools/a.py", "x = 1\n" * (MAX_LINES + 1)),
        (environment_reads, "tf_ops/runtime/a.cc", 'const char* x = std::getenv("X");\n'),
        (environment_reads, "tf_ops/runtime/a.cc", "extern char** environ;\n"),
        (wrong_guards, "tf_ops/base/a.h", "#pragma once\n"),
        (wrong_guards, "tf_ops/base/a.h", "#ifndef A_H\n#define A_H\n#endif\n"),
    ],
)
def test_a_planted_fault_is_seen(tmp_path: Path, rule, where: str, text: str) -> None:
    path = tmp_path / where
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert len(list(rule(tmp_path))) == 1


@pytest.mark.parametrize(
    ("rule", "where", "text"),
    [
        (long_files, "tools/a.py", "x = 1\n" * MAX_LINES),
        (environment_reads, "tf_ops/base/config.cc", 'const char* x = std::getenv("X");\n'),
        (environment_reads, "tf_ops/base/a.cc", "// getenv is in config.cc\n"),
        (wrong_guards, "tf_ops/a.h", "// A.\n#ifndef TF_OPS_A_H_\n#define TF_OPS_A_H_\n"),
    ],
)
def test_what_is_right_passes(tmp_path: Path, rule, where: str, text: str) -> None:
    path = tmp_path / where
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert list(rule(tmp_path)) == []
