"""What the README shows works as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.crash.test_killed_server import Servers

README = Path(__file__).parent.parent / "README.md"
PLACE = "holdfast://127.0.0.1:7250/"
COMMAND = Path(sys.executable).parent / "holdfast"


def run(servers: Servers, *arguments: str) -> str:
    done = subprocess.run(
        arguments,
        env={"HOLDFAST_URL": servers.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_coffee_survives_the_death_of_the_server_and_the_example_runs(tmp_path: Path) -> None:
    text = README.read_text()
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    assert '.venv/bin/holdfast send orders "one coffee"' in text
    servers = Servers(tmp_path)
    servers.start()
    assert run(servers, str(COMMAND), "send", "orders", "one coffee") == "confirmed: 1 message in orders\n"
    servers.kill()
    servers.start()
    assert run(servers, str(COMMAND), "receive", "orders") == "one coffee\n"
    example = found.group(1).replace(PLACE, servers.url)
    assert run(servers, sys.executable, "-c", example) == "two coffees\n"
    servers.stop()
