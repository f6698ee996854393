"""What the README shows works as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def snippet() -> str:
    found = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


def run_in(directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", snippet()],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_holds_what_nobody_confirmed_over_a_restart(tmp_path: Path) -> None:
    assert run_in(tmp_path) == "held: [1]\n"
    assert run_in(tmp_path) == "held: [1, 2]\n"
    verify = Path(sys.executable).parent / "holdfast"
    done = subprocess.run([verify, "journal", "verify"], cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 0
