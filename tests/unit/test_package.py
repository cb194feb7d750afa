"""What `import surreal` gives, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import surreal
from surreal.agent.base import Agent


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = "import sys, surreal; print([name for name in sys.modules if name.partition('.')[0] in heavy])"
    heavy = "heavy = {'torch', 'redis', 'gymnasium', 'numpy', 'pydantic', 'pyarrow', 'typer'}; "
    answer = subprocess.run([sys.executable, "-c", heavy + program], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


def test_public_names_come_when_they_are_used() -> None:
    assert surreal.Agent is Agent
    assert set(surreal.__all__) <= set(dir(surreal))
    for name in surreal.__all__:
        assert name == "STOP" or getattr(surreal, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'surreal' has no attribute 'Agnet'"):
        _ = surreal.Agnet
    with pytest.raises(ImportError, match="Agnet"):
        exec("from surreal import Agnet")


def test_help_begins_with_what_to_do() -> None:
    text = inspect.getdoc(surreal) or ""
    for wanted in ("surreal run cartpole-dqn", "from surreal import Agent, Learner, Model, Replay", "docs/options.md"):
        assert wanted in text


def test_the_command_line_is_there_before_configurations_are() -> None:
    """`surreal run` starts the imports of its processes then; those of a configuration take twice as long."""
    script = "import sys, surreal.cli.program; print({'pydantic', 'yaml', 'numpy', 'torch'} & {*sys.modules})"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"


def test_a_launcher_and_commands_that_look_at_runs_do_without_torch() -> None:
    script = (
        "import sys, importlib\n"
        "for module in ('surreal.plugins.runs.status', 'surreal.run.launch.launcher'):\n"
        "    importlib.import_module(module)\n"
        "    assert not {'torch', 'gymnasium', 'pyarrow'} & set(sys.modules), module\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
