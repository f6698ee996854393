from __future__ import annotations

import pytest

from holdfast.client.url import Address, parse_url
from holdfast.errors import LimitExceeded, UsageError


@pytest.mark.parametrize(
    ("text", "addresses", "user", "password"),
    [
        ("holdfast://localhost", [("localhost", 7250)], "", ""),
        ("holdfast://localhost/", [("localhost", 7250)], "", ""),
        ("holdfast://me@a:1,b:2/", [("a", 1), ("b", 2)], "me", ""),
        ("holdfast://me:se%40c%3Aret@a,b:7251", [("a", 7250), ("b", 7251)], "me", "se@c:ret"),
        ("holdfast://[::1]:7251,[fe80::1]", [("::1", 7251), ("fe80::1", 7250)], "", ""),
    ],
)
def test_a_url_is_taken_apart(text: str, addresses: list[tuple[str, int]], user: str, password: str) -> None:
    url = parse_url(text)

    assert url.addresses == tuple(Address(host, port) for host, port in addresses)
    assert (url.user, url.password) == (user, password)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("localhost:7250", "no scheme"),
        ("http://localhost", "http"),
        ("holdfasts://localhost", "TLS"),
        ("holdfast://", "no host"),
        ("holdfast://a,,b", "no host"),
        ("holdfast://a:port", "no host"),
        ("holdfast://a:0", "no port"),
        ("holdfast://a:65536", "no port"),
        ("holdfast://::1", "no host"),
        ("holdfast://a/queue", "nothing may follow"),
        ("holdfast://a?x=1", "nothing may follow"),
        ("holdfast://:secret@a", "no user"),
        ("holdfast://@a", "no user"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        parse_url(text)


def test_it_must_be_text() -> None:
    with pytest.raises(UsageError, match="bytes"):
        parse_url(b"holdfast://a")  # type: ignore[arg-type]


def test_hosts_have_a_maximum() -> None:
    with pytest.raises(LimitExceeded, match="HOSTS_MAX"):
        parse_url("holdfast://" + ",".join(["a"] * 101))


def test_a_printed_url_shows_no_password() -> None:
    url = parse_url("holdfast://me:secret@a,[::1]:2/")

    assert str(url) == repr(url) == "holdfast://me@a:7250,[::1]:2/"
