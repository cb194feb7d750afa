"""ACL files: digests instead of passwords, files that only their owner reads, and what is there stays."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from surreal.distributed.connection.rights import AGENT, USERS
from surreal.distributed.server.access import render_user, write_users

SEVEN, SIX = (7, 0, 15), (6, 2, 14)


def names_of(path: Path) -> list[str]:
    return [line.split()[1] for line in path.read_text().splitlines()]


def test_files_are_written_for_their_owner_alone_and_hold_no_password(tmp_path: Path) -> None:
    path, folder = tmp_path / "etc" / "users.acl", tmp_path / "secrets"
    added = write_users(path, folder, [], SEVEN)
    assert added == names_of(path) == ["default", "administrator", *(user.name for user in USERS)]
    assert {each.name for each in folder.iterdir()} == set(added) - {"default"}
    assert path.stat().st_mode & 0o777 == 0o600
    for each in folder.iterdir():
        password = each.read_text().strip()
        assert each.stat().st_mode & 0o777 == 0o600
        assert len(password) >= 32
        assert password not in path.read_text()
        assert f"user {each.name} on #{hashlib.sha256(password.encode()).hexdigest()} " in path.read_text()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "user default off" in path.read_text()


def test_what_is_there_stays_and_what_is_missing_is_added(tmp_path: Path) -> None:
    path, folder = tmp_path / "users.acl", tmp_path
    (tmp_path / "one.agent").write_text("mine\n")
    write_users(path, folder, ["one"], SEVEN)
    assert f"user one.agent on #{hashlib.sha256(b'mine').hexdigest()} " in path.read_text()
    before = path.read_text()
    assert write_users(path, folder, ["one"], SEVEN) == []
    assert write_users(path, folder, ["one", "two"], SEVEN) == [f"two.{user.name}" for user in USERS]
    assert path.read_text().startswith(before)
    assert "{one" not in path.read_text().removeprefix(before)


@pytest.mark.parametrize("flags", ["", "sanitize-payload "])  # Redis adds the second one itself
def test_a_default_user_without_rights_is_given_all(tmp_path: Path, flags: str) -> None:
    path = tmp_path / "users.acl"
    write_users(path, tmp_path, [], SEVEN)
    wanted = path.read_text()
    path.write_text(wanted.replace("resetchannels ~* &* +@all\n", f"{flags}resetchannels -@all\n", 1))
    assert write_users(path, tmp_path, [], SEVEN) == ["default"]
    assert path.read_text() == wanted


def test_a_default_user_of_the_operator_stays(tmp_path: Path) -> None:
    path = tmp_path / "users.acl"
    path.write_text("user default on nopass ~* &* +@all\n")
    write_users(path, tmp_path, [], SEVEN)
    assert path.read_text().startswith("user default on nopass ~* &* +@all\nuser administrator ")


def test_an_empty_password_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent").write_text("")
    with pytest.raises(ValueError, match="agent is empty"):
        write_users(tmp_path / "users.acl", tmp_path, [], SEVEN)


def test_redis_6_is_given_no_selectors() -> None:
    assert "(" in render_user(AGENT, None, "x", SEVEN)
    assert "(" not in render_user(AGENT, None, "x", SIX)
