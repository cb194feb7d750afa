"""Completion of presets, runs, policies and settings in a shell, and `surreal completion`.

The shell starts `surreal` for each completion, so nothing heavy is imported here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_PROGRAM, _VARIABLE = "surreal", "_SURREAL_COMPLETE"
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
#: End of typer's script for bash: no space after the `=` of a setting, because its value is missing.
_BASH_END = "    return 0\n"
_BASH_NO_SPACE = '    [[ "${COMPREPLY[0]-}" == *= ]] && compopt -o nospace 2>/dev/null\n'


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(completion)


def completion(
    shell: Annotated[
        str, typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell.", autocompletion=lambda: _SHELLS)
    ],
) -> None:
    """Print the script that completes presets, runs, policies and settings; --install-completion installs it."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    if shell not in _SHELLS:
        raise typer.BadParameter(f"{shell!r} is not one of {', '.join(_SHELLS)}", param_hint="SHELL")
    script = get_completion_script(prog_name=_PROGRAM, complete_var=_VARIABLE, shell=shell)
    if shell == "bash":
        script = script.replace(_BASH_END, f"{_BASH_NO_SPACE}{_BASH_END}")
    typer.echo(script)


def preset_names(incomplete: str) -> list[tuple[str, str]]:
    """Complete presets, with their titles."""
    from surreal.config import preset_files

    names = [name for name in preset_files.preset_names() if name.startswith(incomplete)]
    return [(name, preset_files.preset_title(name)) for name in names]


def presets_and_files(incomplete: str) -> list[tuple[str, str]]:
    """Complete presets and YAML files."""
    return preset_names(incomplete) + [(path, "") for path in _paths(incomplete, "*.yaml")]


def run_names(incomplete: str) -> list[str]:
    """Complete ids of runs with folders here."""
    from surreal.run.process.run_folder import RUN_NAME, RUNS_FOLDER, RunFolder

    folders = [RunFolder(path.parent) for path in sorted(RUNS_FOLDER.glob(f"*/{RUN_NAME}"))]
    return [name for folder in folders if (name := folder.read_run()) and name.startswith(incomplete)]


def policies(incomplete: str) -> list[str]:
    """Complete best policies of runs with folders here, and other policy files."""
    from surreal.run.process.run_folder import RUNS_FOLDER

    best = [str(path) for path in sorted(RUNS_FOLDER.glob("*/eval/best.safetensors"))]
    files = [path for ending in ("safetensors", "onnx", "pt") for path in _paths(incomplete, f"*.{ending}")]
    return list(dict.fromkeys([path for path in best if path.startswith(incomplete)] + files))


def _paths(incomplete: str, pattern: str) -> list[str]:
    folder = Path(incomplete.rpartition("/")[0] or ("/" if incomplete.startswith("/") else "."))
    try:
        found = [
            f"{path}/" if path.is_dir() else str(path)
            for path in sorted(folder.iterdir())
            if path.is_dir() or path.match(pattern)
        ]
    except OSError:
        return []
    return [path for path in found if path.startswith(incomplete)]
