"""Former import paths: the same module under both names, imported only when asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import importlib, sys
import surreal.distributed
new = "surreal.distributed.{new}"
assert new not in sys.modules
old = importlib.import_module("surreal.distributed.{old}")
assert old is sys.modules[new] and old.__spec__.name == old.__name__ == new
assert importlib.import_module("surreal.distributed.{old}") is old
"""


@pytest.mark.parametrize(("old", "new"), [("client", "connection.client"), ("sender", "experience.sending.sender")])
def test_a_former_path_gives_the_module_where_it_is_now(old: str, new: str) -> None:
    assert subprocess.run([sys.executable, "-c", CODE.format(old=old, new=new)]).returncode == 0


def test_a_path_that_never_was_is_still_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        __import__("surreal.distributed.nothing")
