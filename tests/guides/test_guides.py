"""Every Python example of the guides runs as written, one after another, against a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.test_killed_server import Servers

GUIDES = Path(__file__).parent.parent.parent / "docs" / "guides"
PLACE = "holdfast://127.0.0.1:7250/"
COMMAND = Path(sys.executable).parent / "holdfast"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    servers = Servers(tmp_path / "data")
    servers.start()
    yield servers
    servers.stop()


def examples(guide: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (GUIDES / guide).read_text(), re.DOTALL)


@pytest.mark.parametrize("guide", ["getting-started.md", "python.md"])
def test_every_python_example_runs_as_written(guide: str, servers: Servers) -> None:
    found = examples(guide, "python")
    assert found
    for example in found:
        assert PLACE in example
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", example.replace(PLACE, servers.url)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{example}\n{done.stderr}"


def test_the_commands_of_the_first_guide_run_as_written(servers: Servers, tmp_path: Path) -> None:
    lines = [line for block in examples("getting-started.md", "sh") for line in block.splitlines()]
    commands = [line for line in lines if "holdfast " in line and "journal" not in line]
    assert len(commands) >= 6
    for command in commands:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            env={"HOLDFAST_URL": servers.url, "PATH": f"{COMMAND.parent}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        if command.startswith("holdfast receive orders"):
            assert done.stdout == "one coffee\n"
    for action in ("inspect", "verify"):
        arguments = [str(COMMAND), "journal", action, str(tmp_path / "data" / "journal")]
        assert subprocess.run(arguments, capture_output=True, timeout=60, check=False).returncode == 0
