"""The table of users: complete, and as the scripts and the names of keys are."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from surreal.distributed.connection import keys
from surreal.distributed.connection.keys import RUN_KINDS, RUNS, SHARD_KINDS, kind_pattern
from surreal.distributed.connection.rights import CHANNELS, SCRIPTS, USERS, User

_LUA = files("surreal.distributed.connection") / "lua"


def commands_of(script: str) -> set[str]:
    """Commands that a script calls."""
    text = (_LUA / f"{script}.lua").read_text()
    return {found.lower() for found in re.findall(r"redis\.call\('(\w+)'", text)}


def test_scripts_are_those_of_the_folder() -> None:
    assert set(SCRIPTS) == {path.name.removesuffix(".lua") for path in _LUA.iterdir()}


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_a_script_does_what_the_table_says(script: str) -> None:
    table = {command for commands in SCRIPTS[script].values() for command in commands.split()}
    assert commands_of(script) - {"time"} == table  # which every user may ask for


def test_kinds_of_keys_are_those_of_the_table_in_keys() -> None:
    rows = re.findall(r"^\| `surreal:\{R(:sS|:s0)?\}:([^`]+)` \|", keys.__doc__ or "", re.MULTILINE)
    names = re.compile(r"(?<=:)(P|ID|I|J|F|N|SENDER|NAME)(?=:|$)")
    found = {(bool(tag), re.sub(r"\*(:\*)+$", "*", names.sub("*", name))) for tag, name in rows}
    assert found == {(True, kind) for kind in SHARD_KINDS} | {(False, kind) for kind in RUN_KINDS}


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.name)
def test_rights_are_about_kinds_that_exist(user: User) -> None:
    kinds = {kind for found in user.commands().values() for kind in found}
    assert kinds <= {*SHARD_KINDS, *RUN_KINDS, RUNS}
    assert set(user.scripts) <= set(SCRIPTS)


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.name)
def test_a_caller_of_scripts_may_name_all_of_their_keys(user: User) -> None:
    kinds = {kind for name in user.scripts for kind in SCRIPTS[name] if kind not in CHANNELS}
    assert user.commands().get("evalsha", frozenset()) == kinds


def test_patterns_match_the_keys_of_their_run_alone() -> None:
    shard, policy = keys.ShardKeys("mine", 2, 3), keys.PolicyKeys("mine", "default.past.3")
    matching = {
        "block:*": shard.block("a-1"),
        "policy:*:part:*": policy.part("x", 3),
        "stop": keys.RunKeys("mine").stop,
    }
    for kind, key in matching.items():
        for run, is_matched in (("mine", True), ("*", True), ("min", False), ("mine2", False)):
            pattern = re.escape(kind_pattern(kind, run)).replace(r"\*", ".*")
            assert bool(re.fullmatch(pattern, key)) == is_matched
