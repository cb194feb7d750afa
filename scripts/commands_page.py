"""Write docs/commands.md, the reference of the command line, from the commands themselves.

    python scripts/commands_page.py

`make docs` writes the page, and a test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

from surreal.base.system.command_line import make_command, options_of
from surreal.cli.options import Panel
from surreal.cli.program import app
from surreal.config.reference import cell, default_cell, table
from surreal.run.process.arguments import RoleArguments, left_out
from surreal.run.process.roles import RLX_CLIENT, RLX_SERVER, ROLES
from surreal.run.roles.rlx_client import ClientArguments
from surreal.run.roles.rlx_server import ServerArguments

_HEAD = """# Commands

`surreal COMMAND --help` shows the same on a terminal. Every command takes `--debug`, which shows the traceback of an
error. [Exit codes](endings.md) tell how a command ended. Secrets and addresses can be in [environment
variables](environment-variables.md). `surreal --install-completion` completes commands, runs, presets and settings in
your shell.
"""
_ARGUMENTS: dict[str, type[Any]] = {RLX_SERVER.name: ServerArguments, RLX_CLIENT.name: ClientArguments}


def render() -> str:
    """Write the page."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    roles = {role.name: role for role in ROLES}
    parts = [_HEAD]
    for panel in Panel:
        named = [name for name, command in commands.items() if command.rich_help_panel == panel]
        parts += [f"## {panel.value}\n"] if named else []
        for name in named:
            command = commands[name]
            if name in roles:
                kind = _ARGUMENTS.get(name, RoleArguments)
                options = options_of(kind, () if name == RLX_CLIENT.name else left_out(roles[name]))
                command = make_command(lambda **_: None, options, roles[name].summary)
            parts += _sections(f"surreal {name}", command)
    return "\n".join(parts)


def _sections(name: str, command: Any) -> Iterator[str]:
    """Describe a command, and those inside it."""
    inner = getattr(command, "commands", {})
    yield f"### {name}\n"
    yield f"{cell(command.help)}\n"
    shown = [each for each in command.params if not each.hidden and each.name not in ("help", "debug")]
    if shown:
        rows = [(_usage(each), cell(each.help), _default(each)) for each in shown]
        yield table(("argument", "meaning", "default"), rows)
    for word, each in inner.items():
        yield from (text.replace("### ", "#### ", 1) for text in _sections(f"{name} {word}", each))


def _usage(parameter: Any) -> str:
    """Show how a parameter is written."""
    if parameter.param_type_name == "argument":
        return f"`{cell(parameter.metavar or parameter.name.upper())}`"
    names = [*parameter.opts, *parameter.secondary_opts]
    value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
    return ", ".join(f"`{name}{value}`" for name in names)


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    return "" if value in (None, False, "", ()) or callable(value) else default_cell(str(value))


if __name__ == "__main__":
    sys.stdout.write(render())
