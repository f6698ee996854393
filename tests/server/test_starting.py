"""A server that cannot start, or cannot go on, says what happened, what was kept and what to do."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateways.wire_client import send
from tests.server.raw_client import RawClient
from tests.server.server_process import WAIT_S, ServerProcess, run_to_end, write_config

EXIT_CANNOT = 2
EXIT_FAILED = 3

# A server whose disk fails as soon as a certain file appears.
FAILING = """
import os, sys
from pathlib import Path
real, mark = os.fdatasync, Path(sys.argv.pop(1))
def fdatasync(descriptor):
    if mark.exists():
        raise OSError(5, "Input/output error")
    real(descriptor)
os.fdatasync = fdatasync
from holdfast.cli import main
main()
"""

# Where the test runs as root, everything is permitted: so as somebody else, once it comes to the data.
AS_NOBODY = """
import os
import holdfast.server.process as process
from holdfast.cli import main
real = process.OpenNode
def open_as_nobody(configuration):
    if os.geteuid() == 0:
        os.seteuid(65534)
    return real(configuration)
process.OpenNode = open_as_nobody
main()
"""


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, errors = run_to_end("up", "--port", str(port), "--data", tmp_path / "data")
    assert code == EXIT_CANNOT
    assert f"port {port}: another program has this port" in errors
    assert "--port" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "data").exists()


def test_a_data_directory_that_is_in_use(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    with ServerProcess("serve", "--config", config) as server:
        code, errors = run_to_end("serve", "--config", config)
        assert code == EXIT_CANNOT
        assert f"in use by process {server.process.pid}" in errors
        with RawClient(server.port) as client:  # the first one is not disturbed
            client.open()
        assert server.stop() == 0


def test_a_data_directory_that_may_not_be_used(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, "up", "--port", "0", "--data", str(locked / "data")],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == EXIT_CANNOT
    assert "is not permitted" in done.stderr
    assert "chown" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount program, so no small disk to fill")
    if mounted.returncode != 0:
        pytest.skip(f"mounting a small disk is not permitted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.spec("E4")
def test_no_space_for_the_reserve(small_disk: Path) -> None:
    code, errors = run_to_end("up", "--port", "0", "--data", small_disk / "data")
    assert code == EXIT_CANNOT
    assert "bytes to start" in errors
    assert "reserve for a full disk" in errors
    assert "Free some space" in errors
    assert "Traceback" not in errors


@pytest.mark.spec("D")
def test_a_failed_sync_stops_the_server_and_nothing_more_is_confirmed(tmp_path: Path) -> None:
    config, mark = write_config(tmp_path), tmp_path / "the disk is broken"
    program = [sys.executable, "-c", FAILING, str(mark)]
    with ServerProcess("serve", "--config", config, program=program) as server:
        client = RawClient(server.port)
        session = client.open().session
        queue = client.declare("orders")
        client.say(1, send(queue, 1, b"safe"))
        client.wait_for_confirm(1)
        mark.touch()
        client.say(1, send(queue, 2, b"unknown"))
        with pytest.raises(ConnectionError):
            client.wait_for_confirm(2)
        code, errors = server.wait()
        client.close()
    assert code == EXIT_FAILED
    assert "Input/output error" in errors
    assert "start again" in errors
    mark.unlink()
    with ServerProcess("serve", "--config", config) as server, RawClient(server.port) as client:
        assert client.open(session).confirmed["orders"] in (1, 2)
        client.consume("orders")
        assert client.receive(1) == [(1, b"safe")]


def test_a_configuration_that_is_wrong_is_named_by_file_line_and_key(tmp_path: Path) -> None:
    config = write_config(tmp_path, listen="prot = 0")
    code, errors = run_to_end("serve", "--config", config)
    assert code == EXIT_CANNOT
    assert f"{config}, line 6: listen.prot: there is no such key" in errors


def test_a_journal_made_with_other_settings(tmp_path: Path) -> None:
    with ServerProcess("serve", "--config", write_config(tmp_path)) as server:
        assert server.stop() == 0
    code, errors = run_to_end("serve", "--config", write_config(tmp_path, journal=""))
    assert code == EXIT_CANNOT
    assert "segment_bytes = 262144" in errors
