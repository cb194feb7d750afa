from __future__ import annotations

import pytest
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection

from surreal.distributed.connection.address import parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:6060", "127.0.0.1", 6060),
        ("redis-master", "redis-master", 6379),
        ("[::1]:7000", "::1", 7000),
        ("redis://example.org", "example.org", 6379),
        ("redis://user:secret@example.org:1234/3", "example.org", 1234),
    ],
)
def test_tcp_addresses(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert address.connection_class is Connection
    assert (address.options["host"], address.options["port"]) == (host, port)


def test_tls_address_takes_certificates_from_the_query() -> None:
    address = parse_address("rediss://example.org:6380?ssl_ca_certs=/etc/ca.pem")
    assert address.connection_class is SSLConnection
    assert address.options["ssl_ca_certs"] == "/etc/ca.pem"


def test_unix_address() -> None:
    address = parse_address("unix:///tmp/redis.sock")
    assert address.connection_class is UnixDomainSocketConnection
    assert address.options == {"path": "/tmp/redis.sock"}


def test_given_credentials_win_over_those_in_the_address() -> None:
    options = parse_address("redis://a:b@host", username="c", password="d").options
    assert (options["username"], options["password"]) == ("c", "d")


@pytest.mark.parametrize(
    "text",
    [
        "redis://user:tops3cret@host:1/2",
        "redis://:tops3cret@host",
        "unix:///a.sock?db=1&password=tops3cret",
        "rediss://host?ssl_password=tops3cret&ssl_ca_certs=/ca",
    ],
)
def test_passwords_are_never_shown(text: str) -> None:
    address = parse_address(text)
    assert "tops3cret" not in address.shown + repr(address) + str(address)
    assert "***" in address.shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":6379",
        "host:port",
        "host:0",
        "redis://host:99999",
        "http://host",
        "unix://relative/path.sock",
        "unix://",
        "redis://[::1",
    ],
)
def test_bad_address_is_refused_with_the_address(text: str) -> None:
    with pytest.raises(ValueError, match="Redis address"):
        parse_address(text)


@pytest.mark.parametrize(
    "text", ["http://u:tops3cret@host", "redis://u:tops3cret@host:99999", "redis://u:tops3cret@[x"]
)
def test_error_about_an_address_hides_its_password(text: str) -> None:
    with pytest.raises(ValueError, match="Redis address") as caught:
        parse_address(text)
    assert "tops3cret" not in str(caught.value)


def test_sentinels_have_a_service_a_default_port_and_perhaps_a_database() -> None:
    found = parse_address("redis+sentinel://me:secret@a,b:5000,[::1]:7/replay/3?socket_timeout=2")
    assert found.nodes == (("a", 26379), ("b", 5000), ("::1", 7))
    assert (found.service, found.options["db"], found.options["socket_timeout"]) == ("replay", 3, 2)
    assert (found.options["username"], found.options["password"]) == ("me", "secret")
    assert found.shown == "redis+sentinel://a:26379,b:5000,[::1]:7/replay" and found.hosts == {"a", "b", "::1"}
    assert issubclass(parse_address("rediss+sentinel://a/replay").connection_class, SSLConnection)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("redis+sentinel://a:5000", r"names no service; write redis\+sentinel://a:5000/mymaster"),
        ("unix+sentinel://a/replay", "must begin with redis"),
        ("redis+sentinel:///replay", "no host"),
        ("redis+sentinel://a:0/replay", "port 0"),
        ("redis+sentinel://a:x/replay", "not valid"),
    ],
)
def test_wrong_addresses_of_sentinels_are_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_address(text)
