"""Names by the paths of earlier versions."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import surreal
from surreal.base.moved import MODULES, NAMES
from surreal.base.pytorch import Module
from surreal.config import import_class

PACKAGE = Path(surreal.__file__).parent


def test_a_moved_module_has_the_same_names() -> None:
    assert import_module("surreal.utils.pytorch").Module is Module
    assert import_class("surreal.utils.pytorch.Module", Module) is Module
    program = "from surreal import tree; from surreal.base import tree as now; assert tree.map_leaves is now.map_leaves"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_modules_of_a_folder_that_became_one_file_are_found() -> None:
    program = """
import surreal
from surreal.base import moved
moved.MODULES["surreal.base.schedules.linear"] = "surreal.base.schedules"
moved.NAMES["surreal.base.schedules.parts.Linear"] = "surreal.base.schedules.LinearSchedule"
moved._MODULES |= {"surreal.base.schedules.linear", "surreal.base.schedules.parts"}
moved._PARENTS.add("surreal.base.schedules")
from surreal.base.schedules.linear import LinearSchedule
from surreal.base.schedules.parts import Linear
assert Linear is LinearSchedule is surreal.LinearSchedule
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_earlier_path_runs_as_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "surreal", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2 and "Usage: python -m surreal [OPTIONS]" in done.stderr, done.stderr


def test_what_was_never_there_is_refused() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from surreal.observers import Nothing")
    for module in ("surreal.nothing", "surreal.utils.nothing", "surreal.observers.nothing"):
        with pytest.raises(ModuleNotFoundError, match=re.escape(module)):
            import_module(module)


def test_no_module_is_hidden_by_an_earlier_path() -> None:
    for module in {*MODULES, *(earlier.rpartition(".")[0] for earlier in NAMES)}:
        path = PACKAGE.joinpath(*module.split(".")[1:])
        assert not path.with_suffix(".py").exists() and not (path / "__init__.py").exists(), module


def test_everything_is_where_the_tables_say() -> None:
    for module in MODULES.values():
        import_module(module)
    for earlier in NAMES:
        module, _, name = earlier.rpartition(".")
        assert getattr(import_module(module), name) is not None
