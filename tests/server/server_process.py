"""Servers as real processes: started, asked for their port, stopped or killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

WAIT_S = 60.0
SMALL_JOURNAL = """
[journal]
segment_bytes = 262144
segments_max = 60
record_bytes_max = 65536
group_bytes_max = 524288
group_reserve_bytes = 65536
held_records_max = 20000
reserve_acknowledgements = 1000
reserve_system_events = 8
state_bytes_max = 2097152
checkpoint_interval_bytes = 1048576
boot_bytes = 8192
"""


def write_config(directory: Path, *, journal: str = SMALL_JOURNAL, listen: str = "port = 0") -> Path:
    """A configuration for `serve`, beside its data."""
    path = directory / "holdfast.toml"
    path.write_text(f'[node]\ndata = "data"\nname = "test"\n\n[listen]\n{listen}\n{journal}')
    return path


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", "from holdfast.cli import main; main()", *map(str, arguments)]


class ServerProcess:
    """A server that runs. Leaving the context kills it, if it is still there."""

    def __init__(self, *arguments: str | Path, program: list[str] | None = None) -> None:
        self.process = subprocess.Popen(
            (program or command()) + [*map(str, arguments), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()  # at its end, too
        if not line:
            _, errors = self.process.communicate(timeout=WAIT_S)
            raise AssertionError(f"the server did not start: {errors}")
        self.ready: dict[str, Any] = json.loads(line)
        self.port: int = self.ready["port"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=WAIT_S)

    def kill(self) -> None:
        """As a power cut for the process: no goodbye."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def stop(self) -> int:
        """As a person or an init system would. The exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()[0]

    def wait(self) -> tuple[int, str]:
        """Until it ends by itself: exit code, and what it said to people."""
        _, errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, errors


def run_to_end(*arguments: str | Path) -> tuple[int, str]:
    """A command that is expected not to start a server: exit code, and what it said."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=WAIT_S, check=False)
    return done.returncode, done.stderr
