"""The README's program does what the README prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_twenty_lines_run_on_two_processes(tmp_path: Path) -> None:
    text = README.read_text()
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    printed = re.search(r"```\n(\[0\]<stdout>.*?)```", text, re.DOTALL)
    assert program and printed
    (tmp_path / "line.py").write_text(program.group(1))
    run = subprocess.run(
        [Path(sys.executable).with_name("horovodrun"), "-np", "2", sys.executable, "line.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == sorted(printed.group(1).splitlines())
