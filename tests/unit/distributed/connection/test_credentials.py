"""As whom a process comes to Redis."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.system.files import take_user
from surreal.distributed.connection.address import FoundAddress, parse_address, read_credentials
from surreal.distributed.connection.client import RedisClient
from surreal.run.process.run_folder import RunFolder


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    for name in ("agent", "mine.agent", "yours.learner"):
        (tmp_path / name).write_text(f"password of {name}\n")
    return tmp_path


def test_without_variables_nobody_is_named() -> None:
    assert read_credentials({}, "mine") == (None, None, {})


def test_a_file_wins_over_the_variable_itself(secrets: Path) -> None:
    environ = {"SURREAL_REDIS_USER": "agent", "SURREAL_REDIS_PASSWORD": "shown"}
    assert read_credentials(environ, "mine")[:2] == ("agent", "shown")
    environ["SURREAL_REDIS_PASSWORD_FILE"] = str(secrets / "agent")
    assert read_credentials(environ, "mine")[:2] == ("agent", "password of agent")


@pytest.mark.parametrize(
    ("user", "run", "name"),
    [
        ("agent", "mine", "mine.agent"),
        ("agent", "other", "agent"),
        ("learner", "other", "yours.learner"),  # the only one there is: a command that has no run yet
    ],
)
def test_a_folder_has_each_users_password(secrets: Path, user: str, run: str, name: str) -> None:
    environ = {"SURREAL_REDIS_SECRETS": str(secrets), "SURREAL_REDIS_USER": "launcher"}
    take_user(user, environ)
    assert read_credentials(environ, run)[:2] == (name, f"password of {name}")


def test_without_a_folder_a_process_stays_who_it_is() -> None:
    environ = {"SURREAL_REDIS_USER": "x"}
    take_user("agent", environ)
    assert environ == {"SURREAL_REDIS_USER": "x"}


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    environ = {"SURREAL_REDIS_PASSWORD_FILE": str(tmp_path / "missing")}
    with pytest.raises(ValueError, match=r"\$SURREAL_REDIS_PASSWORD_FILE: .*missing cannot be read: No such file"):
        read_credentials(environ, "mine")
    with pytest.raises(ValueError, match="is empty"):
        read_credentials({"SURREAL_REDIS_PASSWORD_FILE": str(tmp_path / "empty")}, "mine")
    with pytest.raises(ValueError, match=r"\$SURREAL_REDIS_SECRETS: .*observer cannot be read"):
        read_credentials({"SURREAL_REDIS_SECRETS": str(tmp_path), "SURREAL_REDIS_USER": "observer"}, "mine")
    with pytest.raises(ValueError, match=r"\$SURREAL_REDIS_TLS_CA is /nowhere, which is not a file"):
        read_credentials({"SURREAL_REDIS_TLS_CA": "/nowhere"}, "mine")


def test_the_environment_is_for_addresses_without_a_password(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURREAL_REDIS_USER", "agent")
    monkeypatch.setenv("SURREAL_REDIS_PASSWORD_FILE", str(secrets / "agent"))
    monkeypatch.setenv("SURREAL_REDIS_TLS_CA", str(secrets / "agent"))

    def options(address: str) -> dict[str, object]:
        return dict(RedisClient(address).redis.connection_pool.connection_kwargs)

    assert options("host:1")["password"] == "password of agent"
    assert options("host:1")["username"] == "agent"
    assert "ssl_ca_certs" not in options("host:1")
    assert options("rediss://host:1")["ssl_ca_certs"] == str(secrets / "agent")
    assert options("rediss://host:1?ssl_ca_certs=/other")["ssl_ca_certs"] == "/other"
    assert options("redis://:own@host:1")["password"] == "own"
    assert "username" not in options("redis://:own@host:1")
    assert "password" not in options("unix:///socket")  # its permissions say who may come
    assert "password of agent" not in repr(RedisClient("host:1"))


def test_what_an_address_says_wins() -> None:
    assert parse_address("host:1").is_open
    assert not parse_address("redis://:x@host:1").is_open


def test_an_address_out_of_a_file_gets_no_secret_unless_the_user_has_named_its_host(
    secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SURREAL_REDIS", raising=False)
    monkeypatch.setenv("SURREAL_REDIS_USER", "agent")
    monkeypatch.setenv("SURREAL_REDIS_PASSWORD_FILE", str(secrets / "agent"))
    monkeypatch.setenv("SURREAL_REDIS_TLS_CA", str(secrets / "agent"))

    def options(given: str | None = None, address: str = "rediss://host:1") -> dict[str, object]:
        (tmp_path / "redis.address").write_text(f"{address}\nrun-1\n")
        found = RunFolder(tmp_path).read_address(given)
        assert found is not None
        return dict(RedisClient(found[0]).redis.connection_pool.connection_kwargs)

    for given in (None, "other:1", "unix:///socket"):
        assert not {"username", "password"} & options(given).keys()
        assert options(given)["ssl_ca_certs"] == str(secrets / "agent")
    assert options("HOST:2")["password"] == "password of agent"
    assert options(address="redis://:own@host:1")["password"] == "own"
    monkeypatch.setenv("SURREAL_REDIS", "other:1 rediss://host:1")
    assert options()["password"] == "password of agent"
    assert not {"username", "password"} & options("other:1").keys()
    assert FoundAddress("host:1", FoundAddress("other:2", "third:3")).named({}) == ["third:3"]
