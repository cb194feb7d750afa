"""Commands that other packages add through the entry point group `surreal.commands`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer

from surreal.cli.program import add_plugins
from tests.fake_distribution import write_distribution

HELLO = """
import typer

def add_to(app):
    @app.command()
    def hello() -> None:
        "Say hello."
        typer.echo("hello from a plugin")
"""


def surreal(*arguments: str, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, str(path)]), **variables}
    command = [sys.executable, "-m", "surreal", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_a_package_adds_commands_and_a_broken_one_is_one_line(tmp_path: Path) -> None:
    entries = "[surreal.commands]\nhello = hello_plugin:add_to\n"
    write_distribution(tmp_path, "hello", entries, {"hello_plugin": HELLO})
    entries = "[surreal.commands]\nbroken = broken_plugin:add_to\ngone = no_such_module:add_to\n"
    write_distribution(tmp_path, "broken", entries, {"broken_plugin": "raise ValueError('it is Monday')"})
    done = surreal("hello", path=tmp_path)
    assert (done.returncode, done.stdout) == (0, "hello from a plugin\n")
    first, second = done.stderr.splitlines()
    assert first.startswith("warning: the commands of plugin broken are missing: ValueError: it is Monday")
    assert second.startswith("warning: the commands of plugin gone are missing: ModuleNotFoundError")
    shown = surreal("--help", path=tmp_path, COLUMNS="100")
    titles = [line.split()[1] for line in shown.stdout.splitlines() if line.startswith("╭─")]
    assert titles == ["Options", "Train", "Look", "Ship", "Many", "Clusters", "Other"]
    assert "Say hello." in shown.stdout.partition("Other")[2]
    completed = surreal(path=tmp_path, _SURREAL_COMPLETE="complete_bash", COMP_WORDS="surreal hel", COMP_CWORD="1")
    assert "hello" in completed.stdout.split()
    assert completed.stderr == ""  # which a shell would show in the middle of the line


def test_a_plugin_that_is_found_twice_is_added_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = "added = []\n\ndef add_to(app):\n    added.append(app)\n"
    (tmp_path / "counting_plugin.py").write_text(calls)
    monkeypatch.syspath_prepend(tmp_path)
    app = typer.Typer()
    entry = EntryPoint("counting", "counting_plugin:add_to", "surreal.commands")
    add_plugins(app, [entry, entry, EntryPoint("again", "counting_plugin:add_to", "surreal.commands")])
    assert sys.modules["counting_plugin"].added == [app]
