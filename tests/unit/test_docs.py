"""What the documents say is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import gen_knobs

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("requirements/*.md")]


def test_the_table_of_knobs_is_the_one_of_the_code() -> None:
    table = gen_knobs.to_markdown(gen_knobs.parse((ROOT / "tf_ops/base/config.def").read_text()))
    assert table.strip() in (ROOT / "docs/knobs.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(document: Path) -> None:
    for named in re.findall(
        r"`((?:tf_ops|tests|examples|docs|tools)/[\w./]+)`", document.read_text()
    ):
        assert (ROOT / named).exists() or "NAME" in named, f"{document.name} names {named}"


def test_every_target_of_make_that_the_readme_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)", makefile, re.MULTILINE)
    assert phony
    for target in re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text()):
        assert target in phony.group(1).split()


def test_every_override_point_has_its_canary() -> None:
    text = (ROOT / "docs/override-points.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    for row in rows:
        code = re.findall(r"`([\w/.]+\.(?:py|cc))`", row[3])
        assert code and all((ROOT / path).exists() for path in code), row
        file, _, test = row[4].strip(" `").partition("::")
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE), row
