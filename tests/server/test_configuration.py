"""The configuration file: what is left out has its default, what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast.server.configuration import Configuration, ListenConfiguration, read_configuration


def read(tmp_path: Path, text: str) -> Configuration:
    path = tmp_path / "holdfast.toml"
    path.write_text(text)
    return read_configuration(path)


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    configuration = read(tmp_path, "")
    assert (configuration.listen.host, configuration.listen.port) == ("127.0.0.1", 7250)
    assert configuration.journal_directory == tmp_path / "holdfast-data" / "journal"
    assert configuration.node_name
    assert configuration.journal == Configuration().journal


def test_what_is_given_counts_and_the_rest_has_its_default(tmp_path: Path) -> None:
    text = '[node]\ndata = "/var/x"\nname = "n1"\n[listen]\nhost = "::1"\nport = 0\n[journal]\nsegments_max = 99\n'
    configuration = read(tmp_path, text)
    assert configuration.data_directory == Path("/var/x")
    assert configuration.node_name == "n1"
    assert configuration.listen == ListenConfiguration(host="::1", port=0)
    assert configuration.journal.segments_max == 99
    assert configuration.journal.state_bytes_max == Configuration().journal.state_bytes_max


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("[node]\nname = 3\n", 2, "node.name: Expected `str`, got `int`"),
        ("[node]\n\nfoo = 3\n", 3, "node.foo: there is no such key"),
        ("[listen]\nport = 70000\n", 2, "listen.port: Expected `int` <= 65535"),
        ("[listen]\nport = '1'\n", 2, "listen.port: Expected `int`, got `str`"),
        ("\n[lisen]\nport = 1\n", 2, "lisen: there is no such key"),
        ("[journal]\nsegment_bytes = 1000\n", 1, "segment_bytes must be a multiple of 512"),
        ("[journal]\nsegmentbytes = 1\n", 2, "journal.segmentbytes: there is no such key"),
        ("[node]\nname = \n", 2, "this is not TOML"),
        ("[listen]\nhost = '0.0.0.0'\n", 2, "no authentication yet"),
        ("[listen]\nhost = 'example.org'\n", 2, "no authentication yet"),
        ("node = 3\n", None, "node: Expected `object`, got `int`"),
        ("journal = 3\n", None, "journal: Expected `object`, got `int`"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, line: int | None, what: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(tmp_path, text)
    message = str(raised.value)
    place = tmp_path / "holdfast.toml"
    assert message.startswith(f"{place}, line {line}: " if line else f"{place}: "), message
    assert what in message
    assert "Nothing was started" in message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_configuration(tmp_path / "missing.toml")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        read_configuration(tmp_path / "x")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_loopback_is_loopback(host: str) -> None:
    ListenConfiguration(host=host).check()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "", "some.host"])
def test_other_addresses_are_refused_with_the_reason(host: str) -> None:
    with pytest.raises(UsageError, match="no authentication yet"):
        ListenConfiguration(host=host).check()
